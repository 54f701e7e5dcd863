"""What models are made of: layers in layers, and the graphs of functional models."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras

from ipu_keras.internals.forms import Class, Function, Module, PrivateName

_FUNCTIONAL = PrivateName(
    "keras.src.models.functional",
    "Functional",
    Class(
        "inputs",
        "outputs",
        "_unpickle_model",
        members={
            "__init__": Function("self", "inputs", "outputs", keywords=("name",)),
            "call": Function("self", "inputs"),
        },
    ),
)
_OLD_MODEL = PrivateName(
    "tensorflow.python.keras.engine.training", "Model", Class(members={"__new__": Function("cls")})
)
# What a functional model has of its graph. It is compared when that is looked at: classes that the
# package needs to be imported have forms that take no time.
_GRAPH = PrivateName(
    "keras.src.ops.function", "Function", Class(assigned=("_nodes_by_depth", "_outputs_struct"))
)
_SEQUENTIAL = PrivateName("keras", "Sequential", Class("call", assigned=("_functional",)))
_OPERATION = PrivateName("keras", "Operation", Class(assigned=("_inbound_nodes",)))
_LAYER = PrivateName(
    "keras",
    "Layer",
    Class(
        members={"_flatten_layers": Function("self")}, assigned=("_layers", "_trainable_variables")
    ),
)
_NODE = PrivateName(
    "keras.src.ops.node",
    "Node",
    Class("input_tensors", members={"__init__": Function("self", "operation")}),
)
_CALLS = PrivateName(
    "keras.src.ops", "node", Module(Node=Class(assigned=("is_input", "operation", "outputs")))
)
_VARIABLE = PrivateName(
    "keras",
    "Variable",
    Class(
        "regularizer",
        members={"_initialize": Function("self", "value")},
        assigned=("_regularizer", "_value"),
    ),
)

# The class of models that are made of inputs and outputs: a base of some of ours.
Functional: Any = _FUNCTIONAL.get()


def node_class() -> Any:
    """The class of what Keras remembers of a symbolic call."""
    return _NODE.get()


def calls_of(operation: Any) -> Sequence[Any]:
    """The nodes of the symbolic calls of a layer, or of another operation, in their order."""
    _OPERATION.get()
    return operation._inbound_nodes


def calls_in(graph: Any) -> Mapping[int, Sequence[Any]]:
    """The nodes in the graph of a functional model, by depth: outputs have 0."""
    _GRAPH.get()
    _CALLS.get()
    return graph._nodes_by_depth


def outputs_in(graph: Any) -> Any:
    """The symbolic outputs of a functional model, in the structure in which it returns them."""
    _GRAPH.get()
    return graph._outputs_struct


def graph_in(model: keras.Sequential) -> Any:
    """The functional model that a Sequential one becomes when it is built; `None` before."""
    _SEQUENTIAL.get()
    return model._functional


def layers_in(layer: keras.Layer) -> Iterable[keras.Layer]:
    """The layer, those in it, those in these, and so on; `layers` of a model is not deep."""
    _LAYER.get()
    return layer._flatten_layers()


def own_layers(layer: keras.Layer) -> Sequence[keras.Layer]:
    """The layers that are attributes of a layer."""
    _LAYER.get()
    return layer._layers


def own_trained_weights(layer: keras.Layer) -> Sequence[Any]:
    """The trainable weights of a layer, without those of layers in it."""
    _LAYER.get()
    return layer._trainable_variables


def device_of(variable: Any) -> str:
    """The name of the device that a variable has its value on."""
    _VARIABLE.get()
    return variable._value.device


def make_again(variable: Any) -> None:
    """Makes what a variable has its value in again, where variables are made at the moment."""
    _VARIABLE.get()
    variable._initialize(variable.numpy())


def regularizer_attribute() -> str:
    """The attribute in which a weight has its regularizer; setting the public one checks it."""
    _VARIABLE.get()
    return "_regularizer"


def old_model_class() -> Any:
    """`Model` of the Keras in TensorFlow itself, which is no longer `tf.keras`."""
    return _OLD_MODEL.get()

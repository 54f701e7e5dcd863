"""What models consist of: nested layers, and the graphs of functional models."""

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
# Apart from `_FUNCTIONAL`, because finding what a class assigns reads byte code. That name is
# looked up when the package is imported, which must take no time; this one when a graph is
# looked at.
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

# The class of models that are made of inputs and outputs; some classes of ours extend it.
Functional: Any = _FUNCTIONAL.get()


def node_class() -> Any:
    """Returns the class in which Keras remembers a symbolic call."""
    return _NODE.get()


def calls_of(operation: Any) -> Sequence[Any]:
    """Returns the nodes of the symbolic calls of a layer or another operation, in their order."""
    _OPERATION.get()
    return operation._inbound_nodes


def calls_in(graph: Any) -> Mapping[int, Sequence[Any]]:
    """Returns the nodes in the graph of a functional model by depth, where outputs have 0."""
    _GRAPH.get()
    _CALLS.get()
    return graph._nodes_by_depth


def outputs_in(graph: Any) -> Any:
    """Returns a functional model's symbolic outputs, in the structure in which it returns them."""
    _GRAPH.get()
    return graph._outputs_struct


def graph_in(model: keras.Sequential) -> Any:
    """Returns the functional model that a Sequential one becomes when built; `None` before."""
    _SEQUENTIAL.get()
    return model._functional


def layers_in(layer: keras.Layer) -> Iterable[keras.Layer]:
    """Yields the layer and all layers nested in it; `layers` of a model lists only its own."""
    _LAYER.get()
    return layer._flatten_layers()


def own_layers(layer: keras.Layer) -> Sequence[keras.Layer]:
    """Returns the layers that are attributes of a layer."""
    _LAYER.get()
    return layer._layers


def own_trained_weights(layer: keras.Layer) -> Sequence[Any]:
    """Returns the trainable weights of a layer itself, without those of nested layers."""
    _LAYER.get()
    return layer._trainable_variables


def device_of(variable: Any) -> str:
    """Returns the name of the device that holds the value of a variable."""
    _VARIABLE.get()
    return variable._value.device


def make_again(variable: Any) -> None:
    """Makes the TensorFlow variable in a Keras variable again, in the scopes that are open now."""
    _VARIABLE.get()
    variable._initialize(variable.numpy())


def regularizer_attribute() -> str:
    """Names the attribute of a weight's regularizer, as setting the public one checks its type."""
    _VARIABLE.get()
    return "_regularizer"


def old_model_class() -> Any:
    """`Model` of the Keras in TensorFlow itself, which is no longer `tf.keras`."""
    return _OLD_MODEL.get()

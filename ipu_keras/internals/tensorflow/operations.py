"""Operations of TensorFlow: definitions, attributes, shapes, and callbacks for new ones."""

import weakref
from collections.abc import Callable
from typing import Any

from ipu_keras.internals.forms import Compiled, Function, InstanceOf, Module, PrivateName

_DEFINITION = PrivateName("tensorflow.python.framework.op_def_registry", "get", Function("name"))
_SET_ATTRIBUTE = PrivateName(
    "tensorflow", "Operation._set_attr", Function("self", "attr_name", "attr_value")
)
_SET_DEVICE = PrivateName("tensorflow", "Operation._set_device", Function("self", "device"))
_CLEAR_ATTRIBUTE = PrivateName("tensorflow", "Operation._clear_attr", Function("self", "attr_name"))
_SET_INPUT = PrivateName(
    "tensorflow", "Operation._update_input", Function("self", "index", "tensor")
)
_REMOVE_CONTROLS = PrivateName("tensorflow", "Operation._remove_all_control_inputs", Compiled())
_ADD_CONTROLS = PrivateName("tensorflow", "Operation._add_control_inputs", Compiled())
_ADD_CALLBACK = PrivateName(
    "tensorflow.python.framework.op_callbacks", "add_op_callback", Function("callback_fn")
)
_REMOVE_CALLBACK = PrivateName(
    "tensorflow.python.framework.op_callbacks", "remove_op_callback", Function("op_callback")
)
_STATIC_SHAPE = PrivateName(
    "tensorflow.python.framework.tensor_util", "constant_value_as_shape", Function("tensor")
)
_USES_ONEDNN = PrivateName("tensorflow.python.util._pywrap_util_port", "IsMklEnabled", Compiled())
_NN = PrivateName(
    "tensorflow.python.ops",
    "gen_nn_ops",
    Module(
        conv=Function("input", "filter", keywords=("strides", "padding", "name")),
        conv2d=Function("input", "filter", keywords=("strides", "padding", "name")),
        conv3d=Function("input", "filter", keywords=("strides", "padding", "name")),
        depthwise_conv2d_native=Function(
            "input", "filter", keywords=("strides", "padding", "name")
        ),
        fused_batch_norm_v3=Function(
            "x",
            "scale",
            "offset",
            "mean",
            "variance",
            "epsilon",
            "exponential_avg_factor",
            "data_format",
            keywords=("is_training", "name"),
        ),
    ),
)
_RANDOM = PrivateName(
    "tensorflow.python.ops",
    "gen_random_ops",
    Module(
        random_uniform=Function("shape", "dtype", keywords=("seed", "seed2", "name")),
        random_uniform_int=Function(
            "shape", "minval", "maxval", keywords=("seed", "seed2", "name")
        ),
        random_standard_normal=Function("shape", "dtype", keywords=("seed", "seed2", "name")),
        truncated_normal=Function("shape", "dtype", keywords=("seed", "seed2", "name")),
    ),
)
_SEED_COUNTS = PrivateName(
    "tensorflow.python.framework.random_seed",
    "_graph_to_seed_dict",
    InstanceOf(weakref.WeakKeyDictionary),
)


def definition_of(kind: str) -> Any:
    """Returns the `OpDef` of a kind of operation, or `None`; publicly only a made one tells it."""
    return _DEFINITION.get()(kind)


def types_of(argument: Any, node: Any) -> list[int]:
    """Returns the types of the tensors that are one argument, or one output, of a `NodeDef`.

    Args:
        argument: An `ArgDef` of the operation's definition.
    """
    if argument.type_list_attr:
        return list(node.attr[argument.type_list_attr].list.type)
    count = node.attr[argument.number_attr].i if argument.number_attr else 1
    return [node.attr[argument.type_attr].type if argument.type_attr else argument.type] * count


def set_attribute(op: Any, name: str, value: Any) -> None:
    """Sets an attribute of an existing operation, for which there is no public method."""
    _SET_ATTRIBUTE.get()
    op._set_attr(name, value)


def move_operation(op: Any, device: str) -> None:
    """Places an existing operation on a device, and unties it from what it was colocated with."""
    _SET_DEVICE.get()
    _CLEAR_ATTRIBUTE.get()
    op._set_device(device)
    op._clear_attr("_class")


def set_input(op: Any, tensor: Any) -> None:
    """Replaces the first input of an operation that no session has run; shapes have to fit."""
    _SET_INPUT.get()
    op._update_input(0, tensor)


def set_control_input(op: Any, before: Any) -> None:
    """Has an operation that no session has run wait for `before`, and for no other."""
    _REMOVE_CONTROLS.get()
    _ADD_CONTROLS.get()
    op._remove_all_control_inputs()
    op._add_control_inputs([before])


def add_callback(callback: Callable) -> None:
    """Has a function see all new operations; nothing public sees those that gradients make."""
    _REMOVE_CALLBACK.get()
    _ADD_CALLBACK.get()(callback)


def remove_callback(callback: Callable) -> None:
    """Takes `add_callback` back."""
    _REMOVE_CALLBACK.get()(callback)


def static_shape(tensor: Any) -> Any:
    """Returns the shape that a tensor will hold, as far as it is known.

    `tf.get_static_value` returns nothing if only a part of the sizes is known.
    """
    return _STATIC_SHAPE.get()(tensor)


def uses_onednn() -> bool:
    """Whether kernels are oneDNN's, as TensorFlow decided by its variables and the processor."""
    return _USES_ONEDNN.get()()


def nn_operations() -> Any:
    """Returns the module of neural-network operations, through which TensorFlow's others call."""
    return _NN.get()


def random_operations() -> Any:
    """The module with the operations that draw, through which others of TensorFlow go."""
    return _RANDOM.get()


def num_counted_seeds(graph: Any) -> int:
    """Returns how many operations of a graph have a count of TensorFlow's as their seed.

    Those that are given none have one, if there is a seed for all of the graph: it counts from 0.
    """
    return _SEED_COUNTS.get().get(graph, 0)

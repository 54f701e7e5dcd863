"""Variables of TensorFlow by their handles, and those that no strategy takes over."""

from typing import Any

import tensorflow as tf

from ipu_keras.internals.forms import Class, Function, PrivateName
from ipu_keras.internals.tensorflow.protos import Message

_GET_DATA = PrivateName(
    "tensorflow.python.ops.handle_data_util", "get_handle_data", Function("source_t")
)
_CREATE_DATA = PrivateName(
    "tensorflow.python.ops.handle_data_util", "create_handle_data", Function("shape", "dtype")
)
_SET_DATA = PrivateName(
    "tensorflow.python.ops.handle_data_util", "set_handle_data", Function("target_t", "handle_data")
)
_DATA = PrivateName(
    "tensorflow.core.framework.cpp_shape_inference_pb2",
    "CppShapeInferenceResult.HandleData",
    Message("is_set", "shape_and_type"),
)
_OF_HANDLE = PrivateName(
    "tensorflow.python.ops.resource_variable_ops",
    "BaseResourceVariable",
    Class(
        members={
            "__init__": Function(
                "self", keywords=("trainable", "shape", "dtype", "handle", "handle_name")
            )
        }
    ),
)
_VARIABLE = PrivateName(
    "tensorflow.python.ops.resource_variable_ops",
    "ResourceVariable",
    Class(members={"__init__": Function("self", "initial_value", keywords=("trainable", "name"))}),
)


def contents_of(handle: tf.Tensor) -> list[tuple[tf.TensorShape, tf.DType]] | None:
    """Returns the shape and type of what is behind a handle, as one pair for a variable.

    The result is `None` if nothing is known. Publicly only the variable itself tells them.
    """
    _DATA.get()
    data = _GET_DATA.get()(handle)
    if data is None or not data.is_set:
        return None
    return [(tf.TensorShape(one.shape), tf.as_dtype(one.dtype)) for one in data.shape_and_type]


def set_contents(handle: tf.Tensor, shape: tf.TensorShape, dtype: tf.DType) -> None:
    """Sets the shape and type of what is behind a handle that was made without a variable."""
    _SET_DATA.get()(handle, _CREATE_DATA.get()(shape, dtype))


def variable_of(handle: tf.Tensor, shape: tf.TensorShape, dtype: tf.DType) -> Any:
    """Makes a variable from an existing handle; `tf.Variable` makes handles of its own."""
    return _OF_HANDLE.get()(
        trainable=False, shape=shape, dtype=dtype, handle=handle, handle_name="variable"
    )


def plain_variable(value: Any, *, trainable: bool, name: str) -> Any:
    """Makes a variable on the current device; `tf.Variable` would let a strategy decide."""
    return _VARIABLE.get()(value, trainable=trainable, name=name)

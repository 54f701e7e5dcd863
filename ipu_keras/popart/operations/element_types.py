"""Translates ONNX's numbers of element types, which attributes hold, to TensorFlow's types."""

import numpy as np
import onnx
import tensorflow as tf

from ipu_keras.popart.model.data_types import dtype_of, number_of


def type_of(number: int) -> tf.DType:
    """Returns TensorFlow's type for an `onnx.TensorProto.DataType`."""
    # ONNX's tables give strings the NumPy type `object`, of which TensorFlow makes no type.
    return tf.string if number == onnx.TensorProto.STRING else tf.as_dtype(dtype_of(number))


def number_of_type(dtype: tf.DType) -> int:
    """Returns ONNX's number of a type that `type_of` gives."""
    return number_of(np.dtype(object if dtype is tf.string else dtype.as_numpy_dtype))

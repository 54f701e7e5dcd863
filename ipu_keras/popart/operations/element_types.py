"""Types of elements, which attributes name by ONNX's numbers."""

import numpy as np
import onnx
import tensorflow as tf

from ipu_keras.popart.model.data_types import dtype_of, number_of


def type_of(number: int) -> tf.DType:
    """TensorFlow's type.

    Args:
        number: Of `onnx.TensorProto.DataType`.

    Raises:
        popart_exception: There is no such type.
    """
    return tf.string if number == onnx.TensorProto.STRING else tf.as_dtype(dtype_of(number))


def number_of_type(dtype: tf.DType) -> int:
    """The number of a type in ONNX.

    Args:
        dtype: One that `type_of` gives.
    """
    return number_of(np.dtype(object if dtype is tf.string else dtype.as_numpy_dtype))

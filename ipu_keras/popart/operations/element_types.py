"""Types of elements, which attributes name by ONNX's numbers."""

import onnx
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception


def type_of(number: int) -> tf.DType:
    """TensorFlow's type.

    Args:
        number: Of `onnx.TensorProto.DataType`.

    Raises:
        popart_exception: There is no such type.
    """
    if number == onnx.TensorProto.STRING:
        return tf.string
    try:
        return tf.as_dtype(onnx.helper.tensor_dtype_to_np_dtype(number))
    except (KeyError, TypeError, ValueError) as error:
        names = ", ".join(
            f"{value} ({name})" for name, value in onnx.TensorProto.DataType.items() if value
        )
        raise popart_exception(
            f"There is no type of elements with the number {number}. Expected one of {names}"
        ) from error

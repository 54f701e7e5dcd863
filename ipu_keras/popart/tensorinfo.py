"""`popart.TensorInfo`: the dtype and shape of a tensor, which NumPy's types may give."""

from typing import Any

import numpy as np

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.tensor_info import _TensorInfoCore
from ipu_keras.popart.model.data_types import name_of


class TensorInfo(_TensorInfoCore):
    """The dtype and shape of a tensor.

    Args:
        *args: A dtype and a shape, or a NumPy array that has both. The dtype is PopART's name,
            such as `"FLOAT16"`, or one of NumPy's types.

    Raises:
        TypeError: The arguments are neither of the two forms.
        KeyError: ONNX has no type for this dtype of NumPy.
        popart_exception: There is no dtype of this name, or a size is negative.

    Example:

    >>> import numpy as np
    >>> TensorInfo("FLOAT", [2, 3]).data_type_lcase()
    'float32'
    >>> TensorInfo(np.float16, (4,)).shape()
    [4]
    """

    def __init__(self, *args: Any):
        super().__init__(*_dtype_and_shape(args))


def _dtype_and_shape(args: tuple[Any, ...]) -> tuple[str, Any]:
    if len(args) == 1 and isinstance(args[0], np.ndarray):
        return _name_of(args[0].dtype), args[0].shape
    if len(args) != 2:
        raise TypeError(
            "A TensorInfo is made of a dtype and a shape, or of a NumPy array. "
            f"Received: {len(args)} argument(s), {args!r}"
        )
    dtype, shape = args
    if isinstance(dtype, str):
        return dtype, _sizes(shape)
    if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        return _name_of(np.dtype(dtype)), _sizes(shape)
    raise TypeError(
        "The dtype of a TensorInfo is a name such as 'FLOAT' or one of NumPy's. "
        f"Received: {dtype!r}"
    )


def _sizes(shape: Any) -> Any:
    if not isinstance(shape, list | tuple | np.ndarray):
        raise TypeError(f"The shape of a TensorInfo is a list of numbers. Received: {shape!r}")
    return shape


def _name_of(dtype: np.dtype) -> str:
    try:
        return name_of(dtype)
    except popart_exception as error:
        raise KeyError(str(error)) from None

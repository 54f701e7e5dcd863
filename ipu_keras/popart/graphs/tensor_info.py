"""`popart_core._TensorInfoCore`: the dtype and shape of a tensor, as users give them."""

from collections.abc import Sequence

import numpy as np

from ipu_keras.popart.graphs.tensor_types import checked_shape, element_type, lower_case
from ipu_keras.popart.model.data_types import name_of


class _TensorInfoCore:
    """The dtype and shape of a tensor.

    Args:
        dataType: PopART's name of the dtype, such as `"FLOAT"`.
        shape: The sizes of the axes.

    Raises:
        popart_exception: There is no such dtype, or a size is negative.
    """

    def __init__(self, dataType: str, shape: Sequence[int]):
        self._element = element_type(dataType)
        self._shape = checked_shape(shape)

    def shape(self) -> list[int]:
        """Returns the sizes of the axes."""
        return list(self._shape)

    def data_type_lcase(self) -> str:
        """Returns the dtype in lower case, such as `"float32"`."""
        return lower_case(self._element)

    def __repr__(self) -> str:
        return f"<{self.data_type_lcase()} {tuple(self._shape)}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TensorInfoCore) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self._element, *self._shape))


def element_of(info: _TensorInfoCore) -> int:
    """Returns ONNX's number of a dtype, which PopART's class does not show."""
    return info._element


def getTensorInfo(array: np.ndarray) -> _TensorInfoCore:
    """Returns the dtype and shape of an array as a `TensorInfo`.

    Args:
        array: An array of NumPy, of any shape.

    Raises:
        TypeError: The argument is no NumPy array.
        popart_exception: ONNX has no such dtype.

    Example:

    >>> getTensorInfo(np.zeros((2, 3), np.float16))
    <float16 (2, 3)>
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"`array` must be a NumPy array. Received: {type(array).__name__}")
    return _TensorInfoCore(name_of(array.dtype), array.shape)

"""Shapes of inputs that a model leaves open."""

from typing import Any

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.tensor_info import _TensorInfoCore


class InputShapeInfo:
    """Shapes and types of inputs of a model, in place of what the model says of them.

    Example:

    >>> info = InputShapeInfo()
    >>> info.has("x")
    False
    """

    def __init__(self) -> None:
        self._infos: dict[str, Any] = {}

    def add(self, tensorId: str, tensorInfo: Any) -> None:
        """Gives an input a shape and a type.

        Args:
            tensorId: Name of the tensor.
            tensorInfo: A `popart.TensorInfo`.

        Raises:
            TypeError: It is none.
        """
        if not isinstance(tensorInfo, _TensorInfoCore):
            raise TypeError(
                f"`tensorInfo` must be a popart.TensorInfo. Received: {tensorInfo!r} for "
                f"{tensorId!r}. Make one with popart.TensorInfo('FLOAT', [2, 3])."
            )
        self._infos[tensorId] = tensorInfo

    def get(self, tensorId: str) -> Any:
        """What was given for an input, a `popart.TensorInfo`.

        Raises:
            popart_exception: Nothing was.
        """
        if tensorId not in self._infos:
            raise popart_exception(
                f"There is no shape for {tensorId!r}. There are some for: "
                f"{', '.join(self._infos) or 'none'}."
            )
        return self._infos[tensorId]

    def has(self, tensorId: str) -> bool:
        """Whether an input was given a shape."""
        return tensorId in self._infos

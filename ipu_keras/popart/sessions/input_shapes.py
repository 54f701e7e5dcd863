"""Shapes and types that users give for the inputs of a model."""

from typing import Any

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.tensor_info import _TensorInfoCore


class InputShapeInfo:
    """Shapes and types of a model's inputs, which take precedence over those in the model.

    Programs of IPUs are static, so a model with open dimensions needs them.

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
            tensorId: The name of the input tensor.
            tensorInfo: A `popart.TensorInfo` with its shape and type.

        Raises:
            TypeError: `tensorInfo` is no `popart.TensorInfo`.
        """
        if not isinstance(tensorInfo, _TensorInfoCore):
            raise TypeError(
                f"`tensorInfo` must be a popart.TensorInfo. Received: {tensorInfo!r} for "
                f"{tensorId!r}. Make one with popart.TensorInfo('FLOAT', [2, 3])."
            )
        self._infos[tensorId] = tensorInfo

    def get(self, tensorId: str) -> Any:
        """Returns the `popart.TensorInfo` that was given for an input.

        Raises:
            popart_exception: No shape was given for the input.
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

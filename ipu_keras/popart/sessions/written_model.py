"""The model of a session, as it is written to files with the weights that the host has."""

import os

from onnx import ModelProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.loading import LoadedModel
from ipu_keras.popart.model.saving import move_data_outside, save
from ipu_keras.popart.model.tensors import tensor_of
from ipu_keras.popart.sessions.weights import Weights


class WrittenModel:
    """Writes the model of a session.

    Args:
        loaded: The model.
        weights: Those of the session.
    """

    def __init__(self, loaded: LoadedModel, weights: Weights):
        self._loaded = loaded
        self._weights = weights
        # By name of weight, the file that it is written to.
        self._moved: dict[str, str] = {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model with the device's weights, and with what an optimizer keeps.

        Args:
            path: Of the file; one that is there is replaced, in one piece.
        """
        proto = self._proto()
        for file in sorted(set(self._moved.values())):
            move_data_outside(proto, [n for n, where in self._moved.items() if where == file], file)
        save(proto, path)

    def move_external(self, before: str, after: str) -> None:
        """Has `save` write weights that came from one file into another.

        Args:
            before: The file that they came from, as the model names it.
            after: The other.

        Raises:
            popart_exception: No weight came from that file, or the other exists.
        """
        moved = [name for name, where in self._loaded.locations.items() if where == before]
        if not moved:
            raise popart_exception(
                f"No weight of the model was in the external file {before!r}. There are: "
                f"{', '.join(sorted(set(self._loaded.locations.values()))) or 'none'}."
            )
        if os.path.exists(after):
            raise popart_exception(
                f"The file {after!r} exists. Name another one, which is made when the model is "
                "written."
            )
        self._moved.update(dict.fromkeys(moved, after))

    def _proto(self) -> ModelProto:
        proto = ModelProto()
        proto.CopyFrom(self._loaded.proto)
        arrays = self._weights.current()
        for tensor in proto.graph.initializer:
            array = arrays.pop(tensor.name, None)
            if array is not None:
                dtype = self._loaded.model.graph.initialisers[tensor.name].dtype
                tensor.CopyFrom(tensor_of(array.astype(dtype), tensor.name))
        # What an optimizer keeps, which the model had not.
        proto.graph.initializer.extend(tensor_of(each, name) for name, each in arrays.items())
        return proto

"""The model of a session, as it is written to files with the weights that the host has."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.external_data import Place, check_unused, is_same_file
from ipu_keras.popart.model.loading import LoadedModel
from ipu_keras.popart.model.saving import put_in_place, save
from ipu_keras.popart.model.tensors import raw_data_of, tensor_of
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
        # By name of initialiser, where its data lies outside of the model.
        self._places: dict[str, Place] = dict(loaded.places)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model with the device's weights, and with what an optimizer keeps; they are
        the host's from then on.

        Args:
            path: Of the file; one that is there is replaced, in one piece.
        """
        check_unused(path, ((name, place.path) for name, place in self._places.items()))
        arrays = self._weights.current()
        proto = self._proto(arrays)
        put_in_place(proto, self._places)
        save(proto, path)
        self._weights.keep(arrays)

    def move_external(self, before: str, after: str) -> None:
        """Has `save` write weights that came from one file into another, which is made now.

        Args:
            before: The file that they came from, as the model names it.
            after: The other.

        Raises:
            popart_exception: No weight came from that file, or the other exists or cannot be made.
        """
        moved = {
            name: place
            for name, place in self._places.items()
            if place.location == before or is_same_file(place.path, before)
        }
        if not moved:
            locations = {place.location for place in self._places.values()}
            raise popart_exception(
                f"No weight of the model was in the external file {before!r}. There are: "
                f"{', '.join(sorted(locations)) or 'none'}."
            )
        if os.path.lexists(after):
            raise popart_exception(
                f"The file {after!r} exists. Name another one, which is made at once, and written "
                "anew with the model."
            )
        proto, offset, path = self._proto(self._weights.current()), 0, Path(os.path.realpath(after))
        places = {}
        for tensor in proto.graph.initializer:
            if tensor.name in moved:
                places[tensor.name] = Place(after, path, offset)
                offset += len(raw_data_of(tensor))
        put_in_place(proto, places)
        self._places.update(places)

    def _proto(self, arrays: Mapping[str, np.ndarray]) -> ModelProto:
        """The model with these weights, all in the message."""
        proto, others = ModelProto(), dict(arrays)
        proto.CopyFrom(self._loaded.proto)
        for tensor in proto.graph.initializer:
            array = others.pop(tensor.name, None)
            if array is not None:
                dtype = self._loaded.model.graph.initialisers[tensor.name].dtype
                in_field = len(tensor.float_data) > 0
                made = tensor_of(array.astype(dtype), tensor.name, in_field=in_field)
                tensor.CopyFrom(made)
        # What an optimizer keeps, which the model had not.
        proto.graph.initializer.extend(tensor_of(each, name) for name, each in others.items())
        return proto

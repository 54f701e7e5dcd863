"""Writes the model of a session to files, with the weights that it has by then."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.loading import LoadedModel
from ipu_keras.popart.files.saving import put_in_place, save
from ipu_keras.popart.model.external_data import FileRange, check_unused, is_same_file
from ipu_keras.popart.model.tensors import raw_data_of, tensor_of
from ipu_keras.popart.sessions.weights import Weights
from ipu_keras.processes.checkpoints import written_once


class WrittenModel:
    """Writes the model of a session, with external data where the model had some."""

    def __init__(self, loaded: LoadedModel, weights: Weights):
        self._loaded = loaded
        self._weights = weights
        # Initialisers whose data is outside of the model's file, by name.
        self._places: dict[str, FileRange] = dict(loaded.places)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model with the device's weights and the optimizer's state, in one piece.

        The weights are the host's from then on.
        """
        check_unused(path, ((name, place.path) for name, place in self._places.items()))
        arrays = self._weights.current()
        written_once(path, lambda: self._write(path, arrays))
        self._weights.keep(arrays)

    def _write(self, path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
        proto = self._proto(arrays)
        put_in_place(proto, self._places)
        save(proto, path)

    def move_external(self, before: str, after: str) -> None:
        """Makes `save` write the weights that came from one file into another, which is made now.

        Raises a `popart_exception` if no weight came from `before`, or `after` exists or cannot
        be made.

        Args:
            before: The file that weights came from, as the model names it.
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
                places[tensor.name] = FileRange(after, path, offset)
                offset += len(raw_data_of(tensor))
        put_in_place(proto, places)
        self._places.update(places)

    def _proto(self, arrays: Mapping[str, np.ndarray]) -> ModelProto:
        """Returns the model with these weights, all in the message."""
        proto, others = ModelProto(), dict(arrays)
        proto.CopyFrom(self._loaded.proto)
        for tensor in proto.graph.initializer:
            array = others.pop(tensor.name, None)
            if array is not None:
                dtype = self._loaded.model.graph.initialisers[tensor.name].dtype
                # ONNX has two places for numbers. Each tensor keeps its own, so that a file that
                # was read and written without training is the same.
                in_field = len(tensor.float_data) > 0
                made = tensor_of(array.astype(dtype), tensor.name, in_field=in_field)
                tensor.CopyFrom(made)
        # What an optimizer keeps is no part of the model, until it is written for a session to
        # go on.
        proto.graph.initializer.extend(tensor_of(each, name) for name, each in others.items())
        return proto

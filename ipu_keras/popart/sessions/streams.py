"""What a session's program is fed, and what it returns to users, micro-batch by micro-batch."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.data_types import dtype_on_device
from ipu_keras.popart.model.graph import GraphInput, OnnxGraph
from ipu_keras.popart.options.enumerations import AnchorReturnTypeId
from ipu_keras.popart.sessions.dataflow import AnchorReturnType, DataFlow
from ipu_keras.popart.sessions.input_shapes import InputShapeInfo
from ipu_keras.popart.sessions.step_io import Stream
from ipu_keras.program import OutfeedMode


@dataclass(frozen=True)
class StepSize:
    """The micro-batches of a step: batches, accumulation of each replica, and replicas."""

    batches: int
    accumulation: int = 1
    replicas: int = 1

    @property
    def factors(self) -> tuple[int, ...]:
        """Batches, accumulation and replicas, without those that are 1."""
        return tuple(n for n in (self.batches, self.accumulation, self.replicas) if n > 1)


_MODES = {
    AnchorReturnTypeId.Final: OutfeedMode.LAST_OF_EACH,
    AnchorReturnTypeId.Sum: OutfeedMode.SUM_OF_EACH,
    AnchorReturnTypeId.All: OutfeedMode.ALL,
    # Programs have no period; users get every n-th value of all that were returned.
    AnchorReturnTypeId.EveryN: OutfeedMode.ALL,
}


def mode_of(returns: AnchorReturnType) -> OutfeedMode:
    """Returns the outfeed mode of a program for what users asked of an anchor."""
    return _MODES[returns.id()]


@dataclass(frozen=True)
class Anchor:
    """A tensor that users get from each step.

    Args:
        shape: Shape of one micro-batch.
        dtype: Type on the device.
        is_of_updates: Whether there is one value for each weight update, the same for all
            micro-batches and replicas.
        is_of_replicas: Whether replicas have values of their own for each weight update.
    """

    name: str
    returns: AnchorReturnType
    size: StepSize
    shape: tuple[int, ...]
    dtype: np.dtype
    is_of_updates: bool = False
    is_of_replicas: bool = False

    @cached_property
    def mode(self) -> OutfeedMode:
        return mode_of(self.returns)

    @cached_property
    def stream(self) -> Stream:
        """What users get, in the order of batches, accumulation, replicas."""
        size = self.size
        if self.mode is not OutfeedMode.ALL:
            count = StepSize(1, 1, size.replicas).factors
        else:
            batches = size.batches // self._period
            count = StepSize(batches, size.accumulation, size.replicas).factors
        return Stream(self.name, self.shape, self.dtype, count)

    def chosen(self, values: np.ndarray) -> np.ndarray:
        """Returns what users asked for, from what the program returned.

        Args:
            values: `(micro-batches, ...)`, or `(replicas, ...)`; for tensors of updates
                `(batches, ...)`, or the last one or the sum; `(batches, replicas, ...)` if
                replicas have their own.
        """
        if self.is_of_updates:
            return self._repeated(values)
        if self.mode is not OutfeedMode.ALL or self._period == 1:
            return values
        by_batch = values.reshape(self.size.batches, -1)
        return by_batch[self._period - 1 :: self._period]

    def _repeated(self, values: np.ndarray) -> np.ndarray:
        """Repeats the value of each update for each micro-batch and replica, as PopART does."""
        size = self.size
        if not self.is_of_replicas:
            axis = 1 if self.mode is OutfeedMode.ALL else 0
            values = np.repeat(np.expand_dims(values, axis), size.replicas, axis)
        if self.mode is OutfeedMode.ALL:
            chosen = values[self._period - 1 :: self._period]
            return np.repeat(chosen, size.accumulation, axis=0).reshape(-1, *self.shape)
        if self.mode is OutfeedMode.SUM_OF_EACH:
            # The sum is over micro-batches, each of which would have added the value.
            values = values * np.asarray(size.accumulation, values.dtype)
        return values

    @cached_property
    def _period(self) -> int:
        is_periodic = self.returns.id() is AnchorReturnTypeId.EveryN
        return self.returns.rp() if is_periodic else 1


def inputs_of(graph: OnnxGraph, infos: InputShapeInfo, size: StepSize) -> list[Stream]:
    """Returns the streams of a step's inputs, by the model or by what users say of them.

    Raises a `popart_exception` if a shape or type is unknown, or the device has no such type.
    """
    return [_input(each, infos, size) for each in graph.inputs]


def _input(given: GraphInput, infos: InputShapeInfo, size: StepSize) -> Stream:
    dtype, shape = given.dtype, given.shape
    if infos.has(given.name):
        info = infos.get(given.name)
        dtype, shape = info.data_type_lcase(), tuple(info.shape())
    if dtype is None or shape is None or None in shape:
        raise popart_exception(
            f"The input {given.name} has the shape {None if shape is None else list(shape)} and "
            f"the type {dtype} in the model, which must be known, as programs of IPUs are static. "
            "Give them with popart.InputShapeInfo, as `inputShapeInfo` of the session."
        )
    known = tuple(size for size in shape if size is not None)
    return Stream(given.name, known, dtype_on_device(np.dtype(dtype)), size.factors)


def anchors_of(
    flow: DataFlow,
    size: StepSize,
    infos: Mapping[str, tuple[tuple[int, ...], np.dtype]],
    of_updates: Collection[str] = (),
    of_replicas: Collection[str] = (),
) -> list[Anchor]:
    """Returns the anchors of a step.

    Raises a `popart_exception` if booleans were to be added up.

    Args:
        infos: Shapes and types of all anchors, and maybe of other tensors.
        of_updates: Names of anchors that have one value for each weight update.
        of_replicas: Names of those that have one for each replica.
    """
    for name in flow.anchors():
        if flow.art(name).id() is AnchorReturnTypeId.Sum and infos[name][1] == np.bool_:
            raise popart_exception(
                f"The anchor {name!r} is of the type BOOL, whose values cannot be added up. "
                "Received: AnchorReturnType('Sum'). Use another one, or anchor a Cast to INT32."
            )
    return [
        Anchor(name, flow.art(name), size, *infos[name], name in of_updates, name in of_replicas)
        for name in flow.anchors()
    ]

"""How users give a step its inputs and get its results: arrays, or functions that return them."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options.logger import python_logger

__all__ = ["IStepIO", "IWeightsIO", "PyStepIO", "PyStepIOCallback", "PyWeightsIO"]

_LOGGER = python_logger("session")


@dataclass(frozen=True)
class Stream:
    """A tensor on its way into a step, or out of it.

    Args:
        shape: Shape of one micro-batch.
        dtype: Type on the device.
        count: Micro-batches of a step, as factors: batches, accumulation and replicas, without
            those that are 1.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    count: tuple[int, ...]

    @cached_property
    def num_elements(self) -> int:
        """How many elements all micro-batches of a step have."""
        return math.prod(self.shape) * self.num_batches

    @cached_property
    def num_batches(self) -> int:
        return math.prod(self.count)


class IStepIO:
    """Gives a step its inputs, and takes its results."""

    def _check(self, inputs: list[Stream], outputs: list[Stream]) -> None:
        """Refuses arrays that do not fit, as far as that is known before anything runs."""

    def _read(self, streams: list[Stream]) -> list[np.ndarray]:
        """Returns the inputs of a step, each `(micro-batches, ...)`."""
        raise NotImplementedError

    def _write(self, results: list[tuple[Stream, np.ndarray]]) -> None:
        """Hands over the results of a step, each with as many elements as its stream."""
        raise NotImplementedError


class PyStepIO(IStepIO):
    """Arrays with the inputs of a step, and arrays for its results.

    Args:
        inputs: By name of tensor, arrays with all micro-batches of a step, one after the other,
            in C order: batches, within these accumulated ones, within these replicas.
        outputs: By name of anchor, arrays that get its values; `initAnchorArrays` of a session
            makes them.

    Raises:
        popart_exception: An array is not C-contiguous.
        TypeError: `inputs` or `outputs` is no dictionary, or has values that are no arrays.

    Example:

    >>> step_io = PyStepIO({"x": np.ones((4, 2), np.float32)}, {})
    """

    def __init__(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]):
        for what, given in (("inputs", inputs), ("outputs", outputs)):
            if not isinstance(given, Mapping):
                raise TypeError(
                    f"`{what}` must be a dictionary of arrays by name of tensor. Received: "
                    f"{what}={given!r}"
                )
        # A scalar of NumPy is no array, but as good to read.
        inputs = {n: np.asarray(a) if isinstance(a, np.generic) else a for n, a in inputs.items()}
        for kind, arrays in (("input", inputs), ("output", outputs)):
            for name, array in arrays.items():
                _check_contiguous("PyStepIO", kind, name, array)
        self._inputs = {name: _Cursor(array) for name, array in inputs.items()}
        self._outputs = {name: _Cursor(array) for name, array in outputs.items()}
        self._checks = True

    def enableRuntimeAsserts(self, enable: bool) -> None:
        """Says whether the sizes of arrays are checked when a step runs.

        Args:
            enable: If not, arrays of other sizes are read and written from where the step before
                stopped, and from their beginning when they end.
        """
        self._checks = enable

    def _read(self, streams: list[Stream]) -> list[np.ndarray]:
        _log_copies("to the device", streams)
        return [
            _as_dtype(self._inputs[stream.name].take(stream.num_elements), stream).reshape(
                stream.num_batches, *stream.shape
            )
            for stream in streams
        ]

    def _write(self, results: list[tuple[Stream, np.ndarray]]) -> None:
        _log_copies("to the host", [stream for stream, _ in results])
        for stream, values in results:
            self._outputs[stream.name].put(values)

    def _check(self, inputs: list[Stream], outputs: list[Stream]) -> None:
        for stream in inputs:
            self._check_one(self._found(self._inputs, "inputs", stream), stream, "input")
        for stream in outputs:
            self._check_one(self._found(self._outputs, "outputs", stream), stream, "output")

    def _found(self, cursors: Mapping[str, "_Cursor"], what: str, stream: Stream) -> "_Cursor":
        if stream.name not in cursors:
            raise popart_exception(
                f"There is no array for tensor {stream.name} in the {what} of the PyStepIO. It has "
                f"arrays for: {', '.join(cursors) or 'none'}."
            )
        return cursors[stream.name]

    def _check_one(self, cursor: "_Cursor", stream: Stream, what: str) -> None:
        _check_dtype(cursor.array, stream)
        if what == "output":
            _check_writeable(cursor.array, stream)
        if self._checks and cursor.array.size != stream.num_elements:
            raise popart_exception(_sizes(cursor.array.size, stream, what))


class PyStepIOCallback(IStepIO):
    """Functions that hand over one micro-batch of a tensor at a time.

    Args:
        input_callback: Called with the name of an input, and whether it is read ahead; returns
            the array of its next micro-batch.
        input_complete_callback: Called with the name of an input, when its array was read.
        output_callback: Called with the name of an anchor; returns the array that gets its next
            value.
        output_complete_callback: Called with the name of an anchor, when its array was written.

    Raises:
        TypeError: An argument cannot be called.

    Example:

    >>> batches = iter(np.ones((4, 2), np.float32))
    >>> step_io = PyStepIOCallback(
    ...     lambda name, is_prefetch: next(batches), lambda name: None,
    ...     lambda name: np.empty(2, np.float32), lambda name: None)
    """

    def __init__(
        self,
        input_callback: Callable[[str, bool], np.ndarray],
        input_complete_callback: Callable[[str], None],
        output_callback: Callable[[str], np.ndarray],
        output_complete_callback: Callable[[str], None],
    ):
        for callback in (
            *(input_callback, input_complete_callback),
            *(output_callback, output_complete_callback),
        ):
            if not callable(callback):
                raise TypeError(f"A PyStepIOCallback needs functions. Received: {callback!r}")
        self._input = input_callback
        self._input_complete = input_complete_callback
        self._output = output_callback
        self._output_complete = output_complete_callback

    def _read(self, streams: list[Stream]) -> list[np.ndarray]:
        _log_copies("to the device", streams)
        read = [np.empty((stream.num_batches, *stream.shape), stream.dtype) for stream in streams]
        # All inputs of a micro-batch are asked for before the next, as a device would need them.
        for position in range(max((stream.num_batches for stream in streams), default=0)):
            for stream, array in zip(streams, read, strict=True):
                given = self._input(stream.name, False)
                one = Stream(stream.name, stream.shape, stream.dtype, (1,))
                _check_array(given, one, "input")
                array[position] = np.asarray(given).reshape(stream.shape)
                self._input_complete(stream.name)
        return read

    def _write(self, results: list[tuple[Stream, np.ndarray]]) -> None:
        _log_copies("to the host", [stream for stream, _ in results])
        for stream, values in results:
            for value in values.reshape(stream.num_batches, *stream.shape):
                array = self._output(stream.name)
                one = Stream(stream.name, stream.shape, stream.dtype, (1,))
                _check_array(array, one, "output")
                np.asarray(array).reshape(-1)[:] = value.ravel()
                self._output_complete(stream.name)


class IWeightsIO:
    """Where weights are read from, or written to."""

    def _items(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yields names and arrays of weights."""
        raise NotImplementedError


class PyWeightsIO(IWeightsIO):
    """Arrays of weights by name.

    Args:
        weights: Arrays by name of tensor, which `readWeights` fills and `writeWeights` reads.

    Raises:
        popart_exception: An array is not C-contiguous.

    Example:

    >>> weights_io = PyWeightsIO({"w": np.empty((2, 3), np.float32)})
    """

    def __init__(self, weights: Mapping[str, np.ndarray]):
        for name, array in weights.items():
            _check_contiguous("PyWeightsIO", "weight", name, array)
        self._weights = dict(weights)

    def _items(self) -> Iterator[tuple[str, np.ndarray]]:
        return iter(self._weights.items())


class _Cursor:
    """An array, and how far it was read or written."""

    def __init__(self, array: np.ndarray):
        # A view as a plain array, as subclasses such as `np.matrix` index and reshape otherwise.
        self.array = np.asarray(array)
        self._flat = self.array.reshape(-1)
        self._at = 0

    def take(self, count: int) -> np.ndarray:
        # The usual case needs no copy.
        if self._at == 0 and count == self._flat.size:
            return self._flat
        self._check_not_empty(count)
        taken = np.take(self._flat, range(self._at, self._at + count), mode="wrap")
        self._move(count)
        return taken

    def put(self, values: np.ndarray) -> None:
        values = values.reshape(-1)
        if self._at == 0 and values.size == self._flat.size:
            self._flat[:] = values
            return
        self._check_not_empty(values.size)
        np.put(self._flat, range(self._at, self._at + values.size), values, mode="wrap")
        self._move(values.size)

    def _move(self, count: int) -> None:
        self._at = (self._at + count) % self._flat.size

    def _check_not_empty(self, count: int) -> None:
        if count and not self._flat.size:
            raise popart_exception(f"An array has no elements where {count} are needed.")


def _log_copies(where: str, streams: list[Stream]) -> None:
    if _LOGGER.isEnabledFor(logging.DEBUG):
        for each in streams:
            size = each.num_elements * each.dtype.itemsize
            _LOGGER.debug("Copies %s, %d bytes, %s", each.name, size, where)


def _check_array(array: Any, stream: Stream, what: str) -> None:
    if not isinstance(array, np.ndarray):
        raise popart_exception(
            f"The callback for the {what} {stream.name} must return an array. "
            f"Received: {type(array).__name__}"
        )
    _check_contiguous("PyStepIOCallback", what, stream.name, array)
    _check_dtype(array, stream)
    if what == "output":
        _check_writeable(array, stream)
    if array.size != stream.num_elements:
        raise popart_exception(_sizes(array.size, stream, what))


def _check_contiguous(owner: str, what: str, name: str, array: Any) -> None:
    if not isinstance(array, np.ndarray):
        raise TypeError(
            f"{owner} needs NumPy arrays. Received: {type(array).__name__} for {name!r}"
        )
    if not array.flags.c_contiguous:
        raise popart_exception(
            f"{owner} is unable to use the numpy {what} array for tensor {name} as it is not "
            "c-contiguous: a copy in every step would take long. Make it contiguous once with "
            "np.ascontiguousarray."
        )


def _check_writeable(array: np.ndarray, stream: Stream) -> None:
    if not array.flags.writeable:
        raise popart_exception(
            f"The array for tensor {stream.name} cannot be written to: it is read-only. Give one "
            "that initAnchorArrays of the session makes, or a copy."
        )


def _check_dtype(array: np.ndarray, stream: Stream) -> None:
    # 64-bit integers are narrowed, as the device has none; all other types must be the device's.
    narrows = array.dtype == np.int64 and stream.dtype == np.int32
    if array.dtype != stream.dtype and not narrows:
        # Of another byte order, it has the same name.
        is_swapped = array.dtype.name == stream.dtype.name
        provided = f"{array.dtype.name} as {array.dtype.str!r}" if is_swapped else array.dtype.name
        raise popart_exception(
            f"Type discrepency for tensor {stream.name}. User provided : {provided} and "
            f"expected : {stream.dtype.name}. Convert the array once, with "
            f"`.astype({stream.dtype.name!r})`."
        )


def _as_dtype(array: np.ndarray, stream: Stream) -> np.ndarray:
    if array.dtype == stream.dtype:
        return array
    limits = np.iinfo(stream.dtype)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise popart_exception(
            f"Tensor {stream.name} has values that {stream.dtype.name} does not hold, which is "
            f"what the device has for {array.dtype.name}. Received: values from {array.min()} to "
            f"{array.max()}"
        )
    return array.astype(stream.dtype)


def _sizes(received: int, stream: Stream, what: str) -> str:
    factors = " x ".join(map(str, stream.count)) or "1"
    return (
        f"Unexpected number of {what} elements for Tensor {stream.name}. Expected "
        f"{stream.num_elements}, but received {received}. A step has {factors} micro-batches "
        f"(batches x accumulated x replicas) of the shape {list(stream.shape)}."
    )

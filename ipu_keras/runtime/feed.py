"""Infeeds: turn batches into super-batches, mostly on a thread in the background."""

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_keras._engine import FeedMemory, Ring, Slot
from ipu_keras.ir import TensorSpec

# How long to wait for the producer when a feed closes. It is between two batches then, or inside
# the user's own dataset code, which cannot be stopped.
_CLOSE_SECONDS = 5.0

_END: Any = object()


@dataclass(frozen=True)
class SuperBatch:
    """The input of one execution: batches of `num_steps` steps, side by side in memory."""

    slot: Slot
    specs: tuple[TensorSpec, ...]
    num_steps: int

    def capsules(self) -> Iterator[Any]:
        """Yields each tensor over all steps as a DLPack capsule."""
        for index, spec in enumerate(self.specs):
            yield self.slot.dlpack(index, (self.num_steps, *spec.shape), spec.dtype)

    @classmethod
    def of(
        cls,
        batches: Sequence[Sequence[np.ndarray]],
        specs: tuple[TensorSpec, ...],
        memory: FeedMemory | None = None,
    ) -> "SuperBatch":
        """Returns a super-batch of batches that are at hand, without a feed."""
        ring = Ring(_sizes(specs), len(batches), 1, memory)
        slot = ring.claim()
        for step, batch in enumerate(batches):
            _write(slot, step, batch, specs)
        return cls(slot, specs, len(batches))


class Feed:
    """Super-batches of a data source, made ahead of time by a thread.

    The thread starts when the feed is opened, at the latest when the first super-batch is asked
    for; before that it reads nothing. It ends by itself with the source. Close a feed that is
    not read to its end: `close` stops the thread, also when it waits. A feed that is dropped, or
    alive when the interpreter exits, closes itself.

    Args:
        open_source: Called on the thread when it starts; returns the batches, each a
            sequence of arrays in the order of `specs`.
        num_steps: Number of batches per super-batch.
        prefetch_depth: Super-batches that may wait to be taken.
        memory: The memory of super-batches; feeds that share it use it one after the
            other. Defaults to memory of the feed's own.
        ahead: Whether a thread makes them ahead of time. Else each is made when it is asked for,
            by whoever asks, and an error of the source is raised at once.

    Example:

    >>> import numpy as np
    >>> spec = TensorSpec((2,), "float32")
    >>> source = lambda: ([np.full(2, i, np.float32)] for i in range(6))
    >>> with Feed(source, (spec,), num_steps=3) as feed:
    ...     print([super_batch.num_steps for super_batch in feed])
    [3, 3]
    """

    def __init__(
        self,
        open_source: Callable[[], Iterable[Sequence[np.ndarray]]],
        specs: tuple[TensorSpec, ...],
        *,
        num_steps: int,
        prefetch_depth: int = 3,
        name: str = "infeed",
        memory: FeedMemory | None = None,
        ahead: bool = True,
    ):
        self.specs = specs
        self.num_steps = num_steps
        self._open_source = open_source
        self._batches: Iterator | None = None
        self._ring = Ring(_sizes(specs), num_steps, prefetch_depth, memory)
        # The thread knows the ring but not the feed, so that a dropped feed is collected, and is
        # a daemon, so that the interpreter can exit: the finalizer runs before it does.
        self._asked = threading.Event()
        self._opened = threading.Event()
        self._thread: threading.Thread | None = None
        if ahead:
            self._thread = threading.Thread(
                target=_produce,
                args=(self._ring, open_source, specs, self._opened, self._asked),
                name=f"ipu-{name}",
                daemon=True,
            )
        self._finalizer = weakref.finalize(self, _stop, self._ring, self._thread, self._asked)

    def open(self) -> None:
        """Opens the source before anything else can open it. Opening again does nothing.

        Two feeds may read one dataset, of which each opening takes the seeds of a pass: whichever
        is opened first has to have the first.
        """
        if self._thread is None:
            self._batches = self._batches or iter(self._open_source())
        elif self._thread.ident is None and not self._ring.closed:
            self._thread.start()
            self._opened.wait()

    def __iter__(self) -> "Feed":
        return self

    def __next__(self) -> SuperBatch:
        """Waits for the next super-batch.

        An error of the source is raised after the super-batches before it were taken.
        """
        self.open()
        if self._batches is not None and not _produce_one(self._ring, self._batches, self.specs):
            raise StopIteration
        self._asked.set()
        slot = self._ring.take()
        if slot is None:
            raise StopIteration
        return SuperBatch(slot, self.specs, self.num_steps)

    def close(self) -> None:
        """Stops the thread and waits for it. Closing again does nothing."""
        self._finalizer()

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *exception) -> None:
        self.close()


def _produce(
    ring: Ring,
    open_source,
    specs: tuple[TensorSpec, ...],
    opened: threading.Event,
    asked: threading.Event,
) -> None:
    """Fills slots on the feed's thread, once asked, until the source or the ring ends."""
    try:
        try:
            batches = iter(open_source())
        finally:
            opened.set()
        asked.wait()
        while _produce_one(ring, batches, specs):
            pass
    except BaseException as error:  # whatever it is, the consumer has to hear of it
        ring.finish(error)
    else:
        ring.finish()


def _produce_one(ring: Ring, batches: Iterator, specs: tuple[TensorSpec, ...]) -> bool:
    """Commits one slot; `False` if the source or the ring ended before it was full."""
    slot = ring.claim()
    if slot is None:
        return False
    for step in range(ring.num_steps):
        batch = next(batches, _END)
        if batch is _END or ring.closed:
            return False
        _write(slot, step, batch, specs)
    ring.commit(slot)
    return True


def _write(slot: Slot, step: int, batch: Sequence[Any], specs: tuple[TensorSpec, ...]) -> None:
    if len(batch) != len(specs):
        raise ValueError(
            f"Every batch of a feed must have {len(specs)} tensors. Received: {len(batch)}"
        )
    for index, (array, spec) in enumerate(zip(batch, specs, strict=True)):
        array = np.asarray(array, dtype=spec.dtype, order="C")
        if array.shape != spec.shape:
            raise ValueError(
                f"Every batch of a feed must have the same shape: {spec.shape} at index {index}. "
                f"Received: {array.shape}. Batch with `drop_remainder=True`."
            )
        slot.write(step, index, array)


def _stop(ring: Ring, thread: threading.Thread | None, asked: threading.Event) -> None:
    ring.close()
    asked.set()
    if thread is None or thread.ident is None:
        return
    if thread is not threading.current_thread():
        thread.join(_CLOSE_SECONDS)


def _sizes(specs: tuple[TensorSpec, ...]) -> list[int]:
    return [spec.nbytes for spec in specs]

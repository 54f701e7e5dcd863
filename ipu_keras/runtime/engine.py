"""The engine of one TensorFlow device, which runs executables and counts what it ran."""

import contextlib
import logging
import secrets
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ipu_keras._engine import FeedMemory
from ipu_keras._rounding import RoundingKeys
from ipu_keras.machine.system import SYSTEM
from ipu_keras.program import Program
from ipu_keras.program.executable import CycleCount, Executable
from ipu_keras.program.executions import Execution

_LOGGER = logging.getLogger("ipu_keras")


@dataclass(frozen=True, kw_only=True)
class EngineCounters:
    """What an engine ran since it was made, by name of program."""

    num_executions: Mapping[str, int]
    num_steps: Mapping[str, int]
    num_compilations: Mapping[str, int]


class Engine:
    """Runs executables on one device, one execution at a time.

    It holds the mutable state of the device: the counters, the memory of feeds, and what ran last.
    It does not keep the variables of that alive: a model that is deleted is freed.
    """

    def __init__(self) -> None:
        # `reset_ipu_seed` sets whether replicas draw the same random numbers, and the seed,
        # which is `None` before; all replicas start their streams anew whenever it was called.
        self.identical_replicas = False
        self.num_seedings = 0
        self.seed: int | None = None
        # The streams of random numbers of functions and of Keras's layers, which start anew when a
        # seed is set.
        self.streams: weakref.WeakSet[Any] = weakref.WeakSet()
        # The `tf.random.Generator` of keys that programs of the device draw, once there is one.
        self.key_generator: Any = None
        self.making_keys = threading.Lock()
        # What executions round with at random; programs know where it is. Processes that train one
        # model round its weights alike.
        world = SYSTEM.world
        number = secrets.randbits(64) if world.size == 1 else world.shared_number
        self.rounding_keys = RoundingKeys(number)
        self._lock = threading.Lock()
        self._idle = threading.Condition()
        self._num_running = 0
        self._last: Callable[[], Executable | None] = _nothing
        self._last_title: str | None = None
        self._feed_memory = FeedMemory()
        self._num_executions: Counter[str] = Counter()
        self._num_steps: Counter[str] = Counter()
        self._num_compilations: Counter[str] = Counter()

    @property
    def loaded(self) -> Executable | None:
        """The executable that ran last; `None` if it was freed with its model or function."""
        return self._last()

    @property
    def last_title(self) -> str | None:
        """What reports call the program that ran last, freed or not; `None` if none has run."""
        return self._last_title

    @property
    def feed_memory(self) -> FeedMemory:
        """The memory that the device's feeds share; it keeps up to five super-batches."""
        return self._feed_memory

    def run(self, executable: Executable, tensors: Sequence[Any], waited: int = 0) -> Any:
        """Runs one execution on a super-batch of tensors, each `(repeat_count, ...)`.

        Returns the outfeed's structure, as the executable gives it.

        Args:
            waited: Nanoseconds in which the feed of the tensors had to be waited for.
        """
        assert executable.host is not None
        with self._lock, SYSTEM.executing(lambda: self._in_words([executable])):
            self._load(executable)
            began = time.perf_counter_ns()
            outfeed = executable.host(tensors)
            ended = time.perf_counter_ns()
        executable.executions.append(Execution(waited, began, ended))
        self.note_execution(executable)
        return outfeed

    @contextlib.contextmanager
    def running(self, executables: Sequence[Executable] = ()) -> Iterator[None]:
        """Makes `wait` wait until the block ends, in which TensorFlow may run executables."""
        with self._idle:
            self._num_running += 1
        try:
            if not executables:
                yield
                return
            with SYSTEM.executing(lambda: self._in_words(executables)):
                yield
        finally:
            with self._idle:
                self._num_running -= 1
                self._idle.notify_all()

    def wait(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: not self._num_running)

    def note_execution(self, executable: Executable) -> None:
        """Counts an execution.

        TensorFlow dispatches functions itself, and only notes them here: they may call Python,
        and that another function, for which the engine's lock would never be free.
        """
        with self._lock:
            self._load(executable)
            self._num_executions[executable.program.name] += 1
            self._num_steps[executable.program.name] += executable.program.repeat_count
        if executable.cycle_count is not None:
            _log_cycles(executable.program, executable.cycle_count)

    def load(self, executable: Executable) -> None:
        """Makes an executable the one that ran last, without an execution."""
        with self._lock:
            self._load(executable)

    def _in_words(self, executables: Sequence[Executable]) -> str:
        """Says what runs, in words that are the same in another process that runs the same."""
        return f"{'; '.join(one.in_words for one in executables)}; seed {self.seed}"

    def _load(self, executable: Executable) -> None:
        self._last_title = executable.program.title
        # A weak reference, or variables of a deleted model would stay. An executable without
        # variables takes little memory, and its function is often temporary, so it is kept for
        # `loaded`.
        self._last = weakref.ref(executable) if executable.variables else lambda: executable

    def count_compilation(self, program: str) -> None:
        with self._lock:
            self._num_compilations[program] += 1

    def counters(self) -> EngineCounters:
        """Returns a copy of the counters as they are now."""
        with self._lock:
            return EngineCounters(
                num_executions=MappingProxyType(dict(self._num_executions)),
                num_steps=MappingProxyType(dict(self._num_steps)),
                num_compilations=MappingProxyType(dict(self._num_compilations)),
            )


def _nothing() -> None:
    pass


def _log_cycles(program: Program, count: CycleCount) -> None:
    # A warning, as Python shows nothing below unless it is told to, and a flag asked for this.
    _LOGGER.warning(
        "Cycle count: %d (modelled, program %r of %d steps, tile %d)",
        count.cycles,
        program.name,
        program.repeat_count,
        count.tile,
    )

"""What TensorFlow's libraries write about themselves, by Abseil's logging, which Python cannot set.

`TF_CPP_MIN_LOG_LEVEL` is read when TensorFlow is imported, and is the user's.
"""

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import tensorflow as tf

from ipu_keras.internals.tensorflow.contexts import eagerly

_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
_LIBRARY = "libtensorflow_framework.so.2"
# As C++ compilers write `absl::MinLogLevel` and `absl::SetMinLogLevel`; the number is that of the
# Abseil that TensorFlow 2.21 is built with.
_SYMBOLS = (
    "_ZN4absl12lts_2025081411MinLogLevelEv",
    "_ZN4absl12lts_2025081414SetMinLogLevelENS0_18LogSeverityAtLeastE",
)
_WARNING = 1


@dataclass
class LogLevel:
    """The least severity that is written; threads may lower it, and the last puts it back.

    Args:
        get: Gives it: 0 for notes, 1 for warnings.
        put: Sets it.
    """

    get: "ctypes._NamedFuncPointer"
    put: "ctypes._NamedFuncPointer"
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _num_open: int = 0
    _before: int = 0

    @contextlib.contextmanager
    def at_least(self, level: int) -> Iterator[None]:
        """Nothing below a severity is written meanwhile.

        Args:
            level: The severity.
        """
        with self._lock:
            if not self._num_open:
                self._before = self.get()
                self.put(max(level, self._before))
            self._num_open += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_open -= 1
                if not self._num_open:
                    self.put(self._before)


@functools.cache
def log_level() -> LogLevel | None:
    """That of the process; `None` if TensorFlow has another Abseil than the one that is known."""
    path = os.path.join(os.path.dirname(tf.__file__), _LIBRARY)
    try:
        library = ctypes.CDLL(path)
        get, put = (getattr(library, symbol) for symbol in _SYMBOLS)
    except (AttributeError, OSError):
        return None
    get.restype, put.argtypes, put.restype = ctypes.c_int, [ctypes.c_int], None
    return LogLevel(get, put)


def without_notes() -> contextlib.AbstractContextManager[None]:
    """Around what starts XLA for a user who has not asked for it: its greetings are not written.

    Warnings and errors are. Who sets `TF_CPP_MIN_LOG_LEVEL` gets what that says.
    """
    level = log_level()
    if level is None or _VARIABLE in os.environ:
        return contextlib.nullcontext()
    return level.at_least(_WARNING)


@functools.cache
def start_xla() -> None:
    """Has XLA greet now, without its notes, which graphs would have it do when they run.

    They run wherever users run them, in sessions and in functions of their own.
    """
    with eagerly(), tf.device("/device:CPU:0"), without_notes():
        tf.function(lambda x: x + 1, jit_compile=True)(tf.zeros(()))

"""Sets what TensorFlow's libraries log about themselves.

They log by Abseil, which Python cannot set. `TF_CPP_MIN_LOG_LEVEL` is read when TensorFlow is
imported, and belongs to the user.
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
# `absl::MinLogLevel` and `absl::SetMinLogLevel` as C++ compilers write them; the number is the
# version of Abseil that TensorFlow 2.21 is built with.
_SYMBOLS = (
    "_ZN4absl12lts_2025081411MinLogLevelEv",
    "_ZN4absl12lts_2025081414SetMinLogLevelENS0_18LogSeverityAtLeastE",
)
_WARNING = 1


@dataclass
class LogLevel:
    """The least severity that is written: 0 for notes, 1 for warnings.

    Threads may raise it, and the last one restores it.
    """

    get: "ctypes._NamedFuncPointer"
    put: "ctypes._NamedFuncPointer"
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _num_open: int = 0
    _before: int = 0

    @contextlib.contextmanager
    def at_least(self, level: int) -> Iterator[None]:
        """While this is open, nothing below a severity is written."""
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
    """Returns the level of the process; `None` if TensorFlow has another version of Abseil."""
    path = os.path.join(os.path.dirname(tf.__file__), _LIBRARY)
    try:
        library = ctypes.CDLL(path)
        get, put = (getattr(library, symbol) for symbol in _SYMBOLS)
    except (AttributeError, OSError):
        return None
    get.restype, put.argtypes, put.restype = ctypes.c_int, [ctypes.c_int], None
    return LogLevel(get, put)


def without_notes() -> contextlib.AbstractContextManager[None]:
    """Keeps XLA from writing its greetings when it starts for a user who has not asked for it.

    Warnings and errors are written. Users who set `TF_CPP_MIN_LOG_LEVEL` get what that says.
    """
    level = log_level()
    if level is None or _VARIABLE in os.environ:
        return contextlib.nullcontext()
    return level.at_least(_WARNING)


@functools.cache
def start_xla() -> None:
    """Starts XLA now, so that its notes, which would appear when a graph runs, are not written.

    Users run graphs in sessions and functions of their own, where nothing could hold the notes
    back.
    """
    with eagerly(), tf.device("/device:CPU:0"), without_notes():
        tf.function(lambda x: x + 1, jit_compile=True)(tf.zeros(()))

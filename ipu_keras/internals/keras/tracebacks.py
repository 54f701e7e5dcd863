"""Which lines of a traceback are of users: what Keras shows, without those of this package."""

import contextlib
import traceback
from pathlib import Path
from types import TracebackType

import keras

from ipu_keras.internals.forms import Function, PrivateName

_IS_SHOWN = PrivateName("keras.src.utils.traceback_utils", "include_frame", Function("fname"))

_FOLDER = Path(__file__).parents[3]
_OWN = (
    *(f"{_FOLDER / package}/" for package in ("ipu_addons", "ipu_keras")),
    "_cext/",  # what Cython has compiled is called as it was in the checkout
)


def of_users(trace: TracebackType | None) -> TracebackType | None:
    """Leaves out lines of this package, of Keras and of TensorFlow, as Keras does of its own.

    `keras.config.disable_traceback_filtering` has them shown.
    """
    if not keras.config.is_traceback_filtering_enabled():
        return trace
    shown = None
    for frame, line in reversed(list(traceback.walk_tb(trace))):
        if _is_of_users(frame.f_code.co_filename):
            shown = TracebackType(shown, frame, frame.f_lasti, line)
    return shown


def _is_of_users(path: str) -> bool:
    # Context managers that decorate functions of ours are called between these.
    return _IS_SHOWN.get()(path) and not path.startswith(_OWN) and path != contextlib.__file__

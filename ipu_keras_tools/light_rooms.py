"""Imports rooms of `ipu_keras` that know nothing of TensorFlow, without its seconds of import."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_tensorflow() -> Iterator[None]:
    """Has imports of `ipu_keras.settings` and the like leave out `ipu_keras/__init__.py`.

    That file imports TensorFlow, as devices have to exist from then on. What was imported without
    it is forgotten afterwards, so that a later `import ipu_keras` finds nothing half done. Where
    `ipu_keras` has been imported already, this does nothing.
    """
    if "ipu_keras" in sys.modules:
        yield
        return
    spec = importlib.util.find_spec("ipu_keras")
    assert spec is not None  # it is installed with this package
    sys.modules["ipu_keras"] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if f"{name}.".startswith("ipu_keras.")]:
            del sys.modules[name]

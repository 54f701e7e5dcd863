"""Gives scripts TensorFlow 1 when they import `tensorflow`, while libraries get TensorFlow 2."""

import builtins
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import tensorflow as tf

from ipu_keras.hooks.tensorflow.legacy import give_legacy_names
from ipu_keras.internals.tensorflow.legacy_modules import (
    cells_of_tensorflow_1,
    layers_of_tensorflow_1,
)

_V1 = tf.compat.v1
_NAME = "tensorflow"

# Modules below these folders were written for the TensorFlow that is installed. In a checkout
# the project's own packages are in none of them, so these are listed apart.
_LIBRARIES = tuple(
    Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib", "purelib", "platlib")
)
_OWN = tuple(
    Path(__file__).parents[2] / package
    for package in ("ipu_keras", "ipu_addons", "ipu_keras_tools")
)

_DROPPED = (
    "TensorFlow 2 has no `tf.contrib`: IPU software for TensorFlow 1 is in `tensorflow.python.ipu`."
)


class TensorFlow1(ModuleType):
    """The module `tensorflow` with the names of `tf.compat.v1`.

    Submodules that `tf.compat.v1` lacks, such as `tensorflow.python`, are TensorFlow's own.
    """

    def __init__(self) -> None:
        super().__init__(_NAME, _V1.__doc__)
        # `tf.compat.v1` has a `compat` of its own, with other module objects than `tf.compat`
        # has.
        self.compat = tf.compat
        self.__path__ = tf.__path__
        self.__file__ = tf.__file__
        self.__spec__ = tf.__spec__

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(_V1, name)
        except AttributeError:
            module = sys.modules.get(f"{_NAME}.{name}")
            if module is not None:
                return module
            said = f" {_DROPPED}" if name == "contrib" else ""
            raise AttributeError(
                f"module 'tensorflow' has no attribute {name!r}, as far as TensorFlow "
                f"{tf.__version__} keeps the names of TensorFlow 1.{said}",
                name=name,
                obj=self,
            ) from None

    def __dir__(self) -> Iterator[str]:
        return iter(sorted({*vars(self), *dir(_V1)}))


class Imports:
    """Stands in for `builtins.__import__`: what is not a library imports TensorFlow 1."""

    def __init__(self, plain: Callable[..., Any]):
        self._plain = plain
        self._tensorflow = TensorFlow1()

    def __call__(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        # A library is told apart by the file of the importing module: a hook in `sys.modules`
        # or an importer would give every module of the process the same TensorFlow.
        if level or name.partition(".")[0] != _NAME or _is_of_a_library(globals):
            return self._plain(name, globals, locals, fromlist, level)
        found = self._module(name)
        if found is None:
            try:
                found = self._plain(name, globals, locals, fromlist, level)
            except ModuleNotFoundError as error:
                if name.startswith(f"{_NAME}.contrib"):
                    error.add_note(_DROPPED)
                raise
        return found if fromlist else self._tensorflow

    def _module(self, name: str) -> ModuleType | None:
        """Returns TensorFlow 1's module of a name such as `tensorflow.train`, or `None`."""
        found: Any = self._tensorflow
        _, *parts = name.split(".")
        if parts[:1] == ["keras"]:  # `keras` is the same in both, and lazy
            return None
        for part in parts:
            found = getattr(found, part, None)
        return found if isinstance(found, ModuleType) else None


def install() -> None:
    """Gives everything but libraries TensorFlow 1 for the rest of the process."""
    builtins.__import__ = imports_of_scripts(builtins.__import__)


def imports_of_scripts(plain: Callable[..., Any]) -> Imports:
    """Returns what imports for scripts, and gives `tf.compat.v1` the names that it dropped."""
    give_legacy_names(layers_of_tensorflow_1(), cells_of_tensorflow_1())
    return Imports(plain)


def _is_of_a_library(importer: Mapping[str, Any] | None) -> bool:
    file = (importer or {}).get("__file__")
    if file is None:
        return False
    return any(Path(file).is_relative_to(folder) for folder in (*_LIBRARIES, *_OWN))

"""Names that are in reach, and what was found so far."""

import ast
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from ipu_keras.internals.keras_2_habits import advice
from ipu_keras_tools.checks.findings import Note, Problem
from ipu_keras_tools.checks.ipu_names import UsedNames

# What to do about what only TensorFlow 1 had.
OF_TENSORFLOW_1 = "This is written for TensorFlow 1: run it with `ipu-keras run --tf1`."


class Scope:
    """Names of a script, a class or a function.

    Args:
        outer: Names that are in reach besides.
    """

    def __init__(self, outer: "Scope | None" = None):
        self._names: dict[str, Any] = {}
        self._outer = outer

    def set(self, name: str, value: Any) -> None:
        """Binds a name.

        Args:
            name: It.
            value: What is known of it.
        """
        self._names[name] = value

    def get(self, name: str) -> Any:
        """What is known of a name; `None` if nothing is.

        Args:
            name: It.
        """
        if name in self._names:
            return self._names[name]
        return None if self._outer is None else self._outer.get(name)

    def names(self) -> Mapping[str, Any]:
        """What is known of its own names."""
        return self._names


class Surroundings:
    """What scripts that import each other have in common.

    Args:
        import_module: Gives a module of a library by its name.
        is_tensorflow_1: Whether that is as TensorFlow 1 has it.
    """

    def __init__(
        self,
        import_module: Callable[[str], Any] = importlib.import_module,
        *,
        is_tensorflow_1: bool = False,
    ):
        self.import_module = import_module
        self.is_tensorflow_1 = is_tensorflow_1
        #: The errors that are caught around what is being read.
        self.caught: list[tuple[type[BaseException], ...]] = []
        self._given: set[str] = set()
        self._may_give_any = False

    def mention(self, names: Iterable[str] | None) -> None:
        """Notes attributes that a script may give to any object.

        Args:
            names: Of them; `None` if it may give any.
        """
        self._may_give_any |= names is None
        self._given.update(names or ())

    def may_give(self, name: str) -> bool:
        """Whether one of the scripts may give an attribute to any object.

        Args:
            name: Of the attribute.
        """
        return self._may_give_any or name in self._given


class Notes:
    """What was found in a script so far.

    Args:
        surroundings: Of the script.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self.names = UsedNames()
        self.surroundings = surroundings
        self._problems: set[Problem] = set()
        self._idle: set[Note] = set()

    def problems(self) -> tuple[Problem, ...]:
        """The lines that will fail, from the first to the last."""
        return tuple(sorted(self._problems))

    def idle(self) -> tuple[Note, ...]:
        """What changes nothing here, from the first line to the last."""
        return tuple(sorted(self._idle))

    def changes_nothing(self, node: ast.expr, name: str, argument: str, why: str) -> None:
        """Notes that something is given to no effect.

        Args:
            node: What is given, or the whole call.
            name: What is called or set.
            argument: Of it; empty if it is all that is given to it.
            why: The reason.
        """
        self._idle.add(Note(node.lineno, node.col_offset + 1, name, argument, why))

    @contextmanager
    def guarded(self, caught: tuple[type[BaseException], ...]) -> Iterator[None]:
        """Around statements whose errors the script catches: those are no problem.

        Args:
            caught: The types of these errors.
        """
        self.surroundings.caught.append(caught)
        try:
            yield
        finally:
            self.surroundings.caught.pop()

    def refuse(self, node: ast.expr | ast.stmt, error: Exception, instead: str = "") -> None:
        """Notes a line that will raise an error.

        Args:
            node: What raises it.
            error: It.
            instead: What to write, if that is no habit of Keras 2.
        """
        if any(isinstance(error, caught) for caught in self.surroundings.caught):
            return
        said = " ".join(str(error).split())
        where = node.lineno, node.col_offset + 1
        self._problems.add(Problem(*where, type(error).__name__, said, advice(error) or instead))


def advice_for_tensorflow_1(name: str) -> str:
    """What to do about a name that only TensorFlow 1 had; empty if it had none of that name.

    Args:
        name: Of something in `tensorflow`.
    """
    if name != "contrib" and not hasattr(tf.compat.v1, name):
        return ""
    new = "" if name == "contrib" else f", or write `tf.compat.v1.{name}`"
    return f"{OF_TENSORFLOW_1.rstrip('.')}{new}."

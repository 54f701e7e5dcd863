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

# The advice for scripts that use what only TensorFlow 1 had.
OF_TENSORFLOW_1 = "This is written for TensorFlow 1: run it with `ipu-keras run --tf1`."


class Scope:
    """Names of a script, a class or a function.

    Args:
        outer: The scope whose names are in reach as well; `None` for a script.
    """

    def __init__(self, outer: "Scope | None" = None):
        self._names: dict[str, Any] = {}
        self._outer = outer

    def set(self, name: str, value: Any) -> None:
        """Binds a name to what is known of it."""
        self._names[name] = value

    def get(self, name: str) -> Any:
        """Returns what is known of a name; `None` if nothing is."""
        if name in self._names:
            return self._names[name]
        return None if self._outer is None else self._outer.get(name)

    def names(self) -> Mapping[str, Any]:
        """Returns what is known of the scope's own names."""
        return self._names


class SharedByScripts:
    """What scripts that import each other have in common.

    Args:
        import_module: Imports a module of a library by its name.
        is_tensorflow_1: Whether it does so for `ipu-keras run --tf1`.
    """

    def __init__(
        self,
        import_module: Callable[[str], Any] = importlib.import_module,
        *,
        is_tensorflow_1: bool = False,
    ):
        self.import_module = import_module
        self.is_tensorflow_1 = is_tensorflow_1
        #: The errors that `try` statements catch around what is being read, across calls.
        self.caught: list[tuple[type[BaseException], ...]] = []
        self._given: set[str] = set()
        self._may_give_any = False

    def mention(self, names: Iterable[str] | None) -> None:
        """Notes attributes that a script may give to any object; `None` if it may give any."""
        self._may_give_any |= names is None
        self._given.update(names or ())

    def may_give(self, name: str) -> bool:
        """Whether one of the scripts may give an attribute of this name to any object."""
        return self._may_give_any or name in self._given


class Notes:
    """What was found in a script so far."""

    def __init__(self, surroundings: SharedByScripts) -> None:
        self.names = UsedNames()
        self.surroundings = surroundings
        # Functions are read again for each call, and say the same each time.
        self._problems: set[Problem] = set()
        self._idle: set[Note] = set()
        self._asked_for: set[str] = set()

    def ask_for(self, names: Iterable[str]) -> None:
        """Notes attributes that the script asks for by `hasattr`, before it reads them."""
        self._asked_for.update(names)

    def problems(self) -> tuple[Problem, ...]:
        """Returns the lines that will fail, from the first to the last."""
        return tuple(sorted(self._problems))

    def idle(self) -> tuple[Note, ...]:
        """Returns what changes nothing here, from the first line to the last."""
        return tuple(sorted(self._idle))

    def changes_nothing(self, node: ast.expr, name: str, argument: str, why: str) -> None:
        """Notes that something is given to no effect.

        Args:
            node: The expression that is given, or the whole call.
            name: The function that is called or the class whose attribute is set.
            argument: The argument without effect; empty if the whole call has none.
            why: The reason that the docstring gives.
        """
        self._idle.add(Note(node.lineno, node.col_offset + 1, name, argument, why))

    @contextmanager
    def guarded(self, caught: tuple[type[BaseException], ...]) -> Iterator[None]:
        """Leaves out problems of these types while it is open, as the script catches them."""
        self.surroundings.caught.append(caught)
        try:
            yield
        finally:
            self.surroundings.caught.pop()

    def refuse(self, node: ast.expr | ast.stmt, error: Exception, instead: str = "") -> None:
        """Notes a line that will raise an error.

        Args:
            instead: What to write, unless it is a habit of Keras 2, whose advice is known.
        """
        if any(isinstance(error, caught) for caught in self.surroundings.caught):
            return
        if isinstance(error, AttributeError) and error.name in self._asked_for:
            return
        said = " ".join(str(error).split())
        where = node.lineno, node.col_offset + 1
        self._problems.add(Problem(*where, type(error).__name__, said, advice(error) or instead))


def advice_for_tensorflow_1(name: str) -> str:
    """Says what to do about a name that only TensorFlow 1 had; empty if it had none of that name.

    Args:
        name: A name in `tensorflow`, without the module.
    """
    if name != "contrib" and not hasattr(tf.compat.v1, name):
        return ""
    new = "" if name == "contrib" else f", or write `tf.compat.v1.{name}`"
    return f"{OF_TENSORFLOW_1.rstrip('.')}{new}."

"""How an option is written down: of `IPUConfig`, of PopART, or among the flags.

Each of these takes its values in a way of its own, and words its own errors. What an option means,
and what it does here or why it does nothing, is said in one form, of which documents, warnings and
checks are made.
"""

import copy
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Constraint:
    """A condition on the value of an option, with the words for its error.

    Args:
        expected: Completes the sentence "`name` must be ...".
    """

    holds: Callable[[Any], bool]
    expected: str


def one_of_texts(*texts: str) -> Constraint:
    """Returns the condition that a value is one of some texts."""
    return Constraint(lambda value: value in texts, f"one of {', '.join(map(repr, texts))}")


class Option:
    """An option: its default, what it means, and what it does here.

    Args:
        default: The default value. Each reader gets its own copy.
        documentation: What the option means, with units.
        effect: What the option does here; `None` if nothing reads it.
        why_idle: A sentence on why nothing reads it; `None` if something does.
    """

    def __init__(
        self, default: Any, documentation: str, effect: Any = None, why_idle: str | None = None
    ):
        self._default = default
        self.documentation = documentation
        self.effect = effect
        self.why_idle = why_idle

    @property
    def default(self) -> Any:
        """A copy of the default value."""
        return copy.copy(self._default)


def idle_options(options: Mapping[str, Option], values: Mapping[str, Any]) -> dict[str, str]:
    """Returns why options that are set have no effect, by name, for those that have none."""
    return {
        name: option.why_idle
        for name, option in options.items()
        if option.why_idle is not None and values[name] != option.default
    }


def did_you_mean(name: str, known: Iterable[str], hint: str) -> str:
    """Returns a hint at a name that is like one that is not known; empty if none is.

    Example:

    >>> did_you_mean("widht", ["width", "depth"], "Did you mean `{}`? ")
    'Did you mean `width`? '
    """
    close = difflib.get_close_matches(name, known, n=1)
    return hint.format(close[0]) if close else ""

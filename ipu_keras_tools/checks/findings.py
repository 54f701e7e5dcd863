"""What a check of a script finds."""

from dataclasses import dataclass

WORKS, PARTLY = "works", "partly"


@dataclass(frozen=True, order=True)
class Problem:
    """A line that will fail; lines and columns count from 1.

    Args:
        error: The name of the error's type.
        said: The message that the error will have.
        instead: What to write; empty if nothing is known.
    """

    line: int
    column: int
    error: str
    said: str
    instead: str = ""


@dataclass(frozen=True, order=True)
class Note:
    """A line that will run, but has something without an effect; lines and columns count from 1.

    Args:
        name: The function that is called or the class whose attribute is set.
        argument: The argument without effect; empty if the whole call has none.
    """

    line: int
    column: int
    name: str
    argument: str
    why: str


@dataclass(frozen=True)
class NameUse:
    """A name of the IPU documents, or an option, that a script uses.

    Args:
        lines: The lines that use it, from 1.
        state: Either `"works"` or `"partly"`.
        why: The reason if it is not `"works"`.
    """

    name: str
    lines: tuple[int, ...]
    state: str
    why: str = ""


@dataclass(frozen=True)
class Findings:
    """What was found in a script, in order of lines and names."""

    path: str
    problems: tuple[Problem, ...]
    names: tuple[NameUse, ...]
    notes: tuple[Note, ...]

    @property
    def will_run(self) -> bool:
        """Whether nothing was found that will fail."""
        return not self.problems

"""What a check of a script finds."""

from dataclasses import dataclass

WORKS, PARTLY, ABSENT = "works", "partly", "absent"


@dataclass(frozen=True, order=True)
class Problem:
    """A line that will fail.

    Args:
        line: From 1.
        column: From 1.
        error: The name of the error's type.
        said: What it will say.
        instead: What to write; empty if nothing is known.
    """

    line: int
    column: int
    error: str
    said: str
    instead: str = ""


@dataclass(frozen=True, order=True)
class Note:
    """A line that will run, and of which something changes nothing here.

    Args:
        line: From 1.
        column: From 1.
        name: What is called or set.
        argument: Of it; empty if it is all that is given to it.
        why: The reason.
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
        name: As documented.
        lines: Where.
        state: `"works"`, `"partly"` or `"absent"`.
        why: Unless it works: what of it does not.
    """

    name: str
    lines: tuple[int, ...]
    state: str
    why: str = ""


@dataclass(frozen=True)
class Findings:
    """What was found in a script.

    Args:
        path: Of the script.
        problems: By line.
        names: By name.
        notes: By line.
    """

    path: str
    problems: tuple[Problem, ...]
    names: tuple[NameUse, ...]
    notes: tuple[Note, ...]

    @property
    def will_run(self) -> bool:
        """Whether nothing was found that fails."""
        return not self.problems

"""When the host executed a program, by its own clock."""

from dataclasses import dataclass

# The last ones that an executable remembers.
MOST_EXECUTIONS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """One execution on the host, in nanoseconds of a clock that begins anywhere.

    Args:
        waited: Time before it in which a feed had to be waited for.
        began: The moment at which all data were there.
        ended: The moment at which the results were there.
    """

    waited: int
    began: int
    ended: int

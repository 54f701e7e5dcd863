"""When the host executed a program, by its own clock."""

from typing import NamedTuple

# The last ones that an executable remembers.
MOST_EXECUTIONS = 64


# A tuple, as one is made for each execution: a frozen dataclass takes four times as long.
class Execution(NamedTuple):
    """One execution on the host, in nanoseconds of a clock that begins anywhere.

    Args:
        waited: Time before it in which a feed had to be waited for.
        began: The moment at which all data were there.
        ended: The moment at which the results were there.
    """

    waited: int
    began: int
    ended: int

"""Which of several processes this one is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """The processes that run one application together, and which of them this is.

    Args:
        size: How many processes there are.
        rank: The number of this one, from 0.
        local_size: How many of them are on this machine.
        local_rank: The number of this one among those.
        shared_number: An integer of 64 bits that the first of them has drawn for all.
    """

    size: int = 1
    rank: int = 0
    local_size: int = 1
    local_rank: int = 0
    shared_number: int = 0


# A process that runs by itself.
ALONE = World()

"""What users choose for single nodes, in the form that PopART has for it."""

import enum
from dataclasses import dataclass


class CommGroupType(enum.IntEnum):
    """Which replicas exchange values with each other."""

    All = 0
    Consecutive = 1
    Orthogonal = 2


class InitType(enum.IntEnum):
    """What a tensor made by `init` begins with."""

    NoInit = 0
    Zero = 1


class RecomputeType(enum.IntEnum):
    """Whether the result of an operation is kept for the backward pass or computed again."""

    Undefined = 0
    Checkpoint = 1
    Recompute = 2
    Recomputed = 3


class ReductionType(enum.IntEnum):
    """What becomes of the single values of a loss."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class ScatterReduction(enum.IntEnum):
    """What becomes of values that are scattered to one place."""

    Sum = 0


class TensorStorage(enum.IntEnum):
    """In which memory a tensor is kept."""

    OnChip = 0
    OffChip = 1


class TileSet(enum.IntEnum):
    """Which tiles are meant: those that compute, or those for input and output."""

    Compute = 0
    IO = 1


class ReplicatedTensorSharding(enum.IntEnum):
    """Whether each replica keeps a part of a tensor only."""

    Off = 0
    On = 1


@dataclass
class TensorLocation:
    """Where a tensor is kept.

    Args:
        storage: Its memory.
        loadTileSet: The tiles that load it.
        storageTileSet: The tiles that it is on, if it is on the chip.
        replicatedTensorSharding: Whether replicas share it out.
    """

    storage: TensorStorage = TensorStorage.OnChip
    loadTileSet: TileSet = TileSet.Compute
    storageTileSet: TileSet = TileSet.Compute
    replicatedTensorSharding: ReplicatedTensorSharding = ReplicatedTensorSharding.Off

    def serialize(self) -> list[int]:
        """The numbers that stand for it in a model, in the order of the arguments."""
        return [
            int(each)
            for each in (
                self.storage,
                self.loadTileSet,
                self.storageTileSet,
                self.replicatedTensorSharding,
            )
        ]

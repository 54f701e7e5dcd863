"""Settings: options of sessions that have parts."""

from typing import Any

from ipu_keras.popart.options.enumerations import (
    AccumulateOuterFragmentSchedule,
    AutodiffStitchStrategy,
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    CommGroupType,
    ExecutionPhaseIOSchedule,
    ExecutionPhaseSchedule,
    ReplicatedTensorSharding,
    TensorStorage,
    TileSet,
)
from ipu_keras.popart.options.kinds import PART, TEXT, integer, list_of
from ipu_keras.popart.options.option import Setting, Settings

__all__ = [
    "AccumulateOuterFragmentSettings",
    "AutodiffSettings",
    "AutomaticLossScalingSettings",
    "BatchSerializationSettings",
    "ClipNormSettings",
    "CommGroup",
    "ExecutionPhaseSettings",
    "NumIOTiles",
    "TensorLocation",
    "TensorLocationSettings",
]


class CommGroup(Settings):
    """Which replicas exchange values with each other; a name of releases from 2.2 on.

    Args:
        type: How replicas are grouped.
        replicaGroupSize: Number of replicas in a group; ignored for `CommGroupType.All`.

    Example:

    >>> CommGroup(CommGroupType.Consecutive, 2)
    CommGroup(type=CommGroupType.Consecutive, replicaGroupSize=2)
    """

    type = Setting(CommGroupType.All, "How replicas are grouped.")
    replicaGroupSize = Setting(0, "Replicas in a group.")


class TensorLocation(Settings):
    """Where a tensor is kept.

    Args:
        *values: `storage`; `storage` and `replicatedTensorSharding`; or `storage`,
            `loadTileSet`, `storageTileSet` and `replicatedTensorSharding`.
        **named: The same options by their names.

    Example:

    >>> TensorLocation(TensorStorage.OffChip, ReplicatedTensorSharding.On)
    TensorLocation(storage=TensorStorage.OffChip, loadTileSet=TileSet.Compute, \
storageTileSet=TileSet.Compute, replicatedTensorSharding=ReplicatedTensorSharding.On)
    """

    storage = Setting(TensorStorage.OnChip, "In which memory it is kept.")
    loadTileSet = Setting(TileSet.Compute, "The tiles that load it.")
    storageTileSet = Setting(TileSet.Compute, "The tiles that keep it.")
    replicatedTensorSharding = Setting(
        ReplicatedTensorSharding.Off, "Whether each replica keeps a part of it only."
    )

    def __init__(self, *values: Any, **named: Any):
        # PopART's constructor has overloads; the one of two arguments leaves the tile sets out.
        if len(values) == 2 and isinstance(values[-1], ReplicatedTensorSharding):
            named["replicatedTensorSharding"] = values[-1]
            values = values[:1]
        super().__init__(*values, **named)


class TensorLocationSettings(Settings):
    """Where tensors of a kind are kept.

    Args:
        location: Where large enough tensors are; a `TensorStorage` is a location in it.
        minElementsForOffChip: Smaller tensors stay in the memory of the IPU.
        minElementsForReplicatedTensorSharding: Each replica keeps smaller tensors whole.
    """

    location = Setting(TensorLocation(), "Of those that are large enough.")
    minElementsForOffChip = Setting(2, "Tensors of fewer elements stay in the memory of the IPU.")
    minElementsForReplicatedTensorSharding = Setting(
        8192, "Tensors of fewer elements are kept whole by each replica."
    )

    def __init__(
        self,
        location: TensorLocation | TensorStorage = TensorStorage.OnChip,
        minElementsForOffChip: int = 2,
        minElementsForReplicatedTensorSharding: int = 8192,
    ):
        is_storage = isinstance(location, TensorStorage)
        super().__init__(
            TensorLocation(location) if is_storage else location,
            minElementsForOffChip,
            minElementsForReplicatedTensorSharding,
        )


class BatchSerializationSettings(Settings):
    """How batches are computed in parts, one after the other."""

    factor = Setting(0, "The number of compute batches to split operations into.")
    concatOnVirtualGraphChange = Setting(
        True, "Whether the parts become one where another virtual graph begins."
    )
    concatOnExecutionPhaseChange = Setting(
        True, "Whether the parts become one where another execution phase begins."
    )
    concatOnPipelineStageChange = Setting(
        True, "Whether the parts become one where another pipeline stage begins."
    )
    transformContext = Setting(
        BatchSerializationTransformContext.Fwd,
        "Whether this is done before the backward pass is made, or after that.",
    )
    method = Setting(BatchSerializationMethod.UnrollDynamic, "How it is done.")
    batchSchedule = Setting(
        BatchSerializationBatchSchedule.Isomorphic,
        "In which order the operations of the parts run.",
    )


class AutodiffSettings(Settings):
    """How backward graphs are made."""

    stitchStrategy = Setting(
        AutodiffStitchStrategy.RecomputeAllNonInputs,
        "Where they get the values of the forward graph from.",
    )


class ExecutionPhaseSettings(Settings):
    """How a model is computed in phases, with tensors loaded for each."""

    phases = Setting(0, "Number of phases of the whole model.")
    stages = Setting(
        2,
        "Number of overlapping stages: 1 for one IPU, 2 for two that take turns.",
        kind=integer(1),
    )
    weightIOSchedule = Setting(ExecutionPhaseIOSchedule.Preload, "When weights are loaded.")
    activationIOSchedule = Setting(
        ExecutionPhaseIOSchedule.Preload, "When activations and gradients are loaded."
    )
    optimizerStateIOSchedule = Setting(
        ExecutionPhaseIOSchedule.OnDemand, "When the optimizer's state is loaded."
    )
    accumulatorIOSchedule = Setting(
        ExecutionPhaseIOSchedule.Preload, "When accumulated gradients are loaded."
    )
    schedule = Setting(
        ExecutionPhaseSchedule.Interleaving, "In which order the weights of a phase are updated."
    )


class AccumulateOuterFragmentSettings(Settings):
    """How operations that follow the accumulation of gradients run."""

    schedule = Setting(AccumulateOuterFragmentSchedule.Serial, "In which order it runs.")
    excludedVirtualGraphs = Setting(
        [], "Virtual graphs that are not computed beside others.", kind=list_of(integer(0))
    )


class AutomaticLossScalingSettings(Settings):
    """How the loss scaling follows from gradients.

    After each batch the scaling doubles, or halves if too many elements are large of the
    gradients of what matrix products and convolutions multiply.
    """

    enabled = Setting(False, "Whether it is.")
    binEdgeLocation = Setting(
        0.125,
        "From where on an element is large, as a part of its type's largest number.",
        kind=PART,
    )
    thresholdUpperCountProportion = Setting(
        1e-7, "The part of elements that may be large before the scale becomes less.", kind=PART
    )


class ClipNormSettings(Settings):
    """Weights whose gradients are clipped together, and the largest norm of these.

    Args:
        weightIds: Names of the weights.
        maxNorm: The largest norm of all their gradients together.
    """

    weightIds = Setting([], "Names of the weights.", kind=list_of(TEXT))
    maxNorm = Setting(0.0, "The largest norm of their gradients together.")

    def __init__(self, weightIds: list[str], maxNorm: float):
        super().__init__(weightIds, maxNorm)


class NumIOTiles:
    """A number of tiles that are set apart for input and output.

    Args:
        numIOTiles: The number of tiles of each IPU.

    Example:

    >>> int(NumIOTiles(32))
    32
    """

    def __init__(self, numIOTiles: int = 0):
        self._number = integer(0).taken("numIOTiles", numIOTiles)

    def __int__(self) -> int:
        return self._number

    def __index__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self._number == (other._number if isinstance(other, NumIOTiles) else other)

    def __hash__(self) -> int:
        return hash(self._number)

    def __repr__(self) -> str:
        return f"NumIOTiles({self._number})"

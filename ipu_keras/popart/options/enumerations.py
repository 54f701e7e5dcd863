"""The enumerations of PopART, with the values that they have there."""

import enum
from typing import Self

from ipu_keras.popart.exceptions import popart_exception


class Enumeration(enum.Enum):
    """Members print as `VirtualGraphMode.Manual`, and `int` gives their numbers.

    Behind its number a member may have what it means, which the docstring of its class then says.
    """

    _value_: int
    _meaning: str

    def __new__(cls, number: int, meaning: str = "") -> Self:
        member = object.__new__(cls)
        member._value_ = number
        member._meaning = meaning
        return member

    def __init_subclass__(cls) -> None:
        lines = []
        for member in cls:
            names = [f"`{name}`" for name, each in cls.__members__.items() if each is member]
            if member._meaning:
                lines.append(f"* {', '.join(names)}: {member._meaning}")
        if lines:
            cls.__doc__ = "\n".join([f"{cls.__doc__}\n", *lines])

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value


class DataType(Enumeration):
    """Types of the elements of tensors."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    UINT32 = 6
    UINT64 = 7
    BOOL = 8
    FLOAT = 9
    FLOAT16 = 10
    BFLOAT16 = 11
    DOUBLE = 12
    COMPLEX64 = 13
    COMPLEX128 = 14
    STRING = 15
    UNDEFINED = 16


class InitType(Enumeration):
    """What a new tensor holds."""

    NoInit = 0, "whatever its memory holds."
    Zero = 1, "zeros."


class AnchorReturnTypeId(Enumeration):
    """Which values of an anchor a step returns."""

    Final = 0, "the value of the last batch."
    EveryN = 1, "the value of each n-th batch."
    All = 2, "the values of all batches."
    Sum = 3, "the sum of the values of all batches."


class ReductionType(Enumeration):
    """How the elements of a loss, or gradients, are reduced to one."""

    Mean = 1, "their mean."
    NoReduction = 2, "they are not reduced."
    Sum = 0, "their sum."


class ScatterReduction(Enumeration):
    """How values that are scattered to the same place are reduced."""

    Sum = 0, "they are added."


class WeightDecayMode(Enumeration):
    """How weights decay."""

    Decay = 0, "directly, beside the update by gradients."
    L2Regularization = 1, "as a part of their gradients."


class SGDAccumulatorAndMomentum(Enumeration):
    """Where SGD accumulates gradients."""

    Combined = 0, "in the momentum."
    Separate = 1, "in a tensor of their own."


class AdamMode(Enumeration):
    """Which optimizer `Adam` is; those with `NoBias` do not correct the bias of their averages."""

    Adam = 0
    AdamNoBias = 1
    Lamb = 3
    LambNoBias = 4
    AdaMax = 2


class AdaptiveMode(Enumeration):
    """Which optimizer `Adaptive` is."""

    AdaGrad = 0
    RMSProp = 1
    CenteredRMSProp = 2
    AdaDelta = 3


# PopART has both pairs of names for the same numbers.
class BatchSerializationTransformContext(Enumeration):
    """When batches are serialised."""

    Forward = 0, "before the backward pass is made."
    Backward = 1, "after that."
    Fwd = 0
    Bwd = 1


class BatchSerializationMethod(Enumeration):
    """How batches are serialised."""

    UnrollDynamic = 0, "one after the other, by slices whose place is computed."
    UnrollStatic = 1, "one after the other, by slices whose place is known."
    Loop = 2, "in a loop."


class BatchSerializationBatchSchedule(Enumeration):
    """In which order the operations of serialised batches run."""

    Scheduler = 0, "in an order that the scheduler chooses, one batch after the other."
    Isomorphic = 1, "in the same order in each batch."
    OverlapOnIo = 2, "with loads of the next batch right after this one's computation."
    OverlapOnCompute = 3, "with loads of the next batch right before this one's computation."


class AutodiffStitchStrategy(Enumeration):
    """Where a backward graph gets the values of the forward graph that it needs."""

    RecomputeMinimal = 0, "it recomputes all values that are no inputs or outputs."
    RecomputeAllNonInputs = 1, "it recomputes all values that are no inputs."
    AddFwdOutputs = 2, "the values become outputs of the forward graph."
    SafeAddFwdOutputs = (
        3,
        "they become outputs where that is possible, and are recomputed elsewhere.",
    )


class SubgraphCopyingStrategy(Enumeration):
    """When inputs and outputs of subgraphs are copied."""

    OnEnterAndExit = 0, "all inputs before the subgraph, all outputs after it."
    JustInTime = 1, "inputs before they are used, outputs as soon as they are there."


class PatternsLevel(Enumeration):
    """Which patterns are enabled."""

    All = 3, "all."
    Default = 2, "those that are on by default."
    Minimal = 1, "those without which operations could not be run."
    NoPatterns = 0, "none."


class DotCheck(Enumeration):
    """When a `.dot` file of the graph is written."""

    Fwd0 = 0, "once the forward pass is there."
    Fwd1 = 1, "after patterns have been applied to that."
    Bwd0 = 2, "once the backward pass is there."
    PreAlias = 3, "after everything but aliasing."
    Final = 4, "at the end."


class RecomputationType(Enumeration):
    """Which operations are computed again in the backward pass."""

    NoRecompute = 0, "none."
    Standard = 1, "those that leave the least memory live."
    NormOnly = 2, "normalisations, and activations that follow them."
    Pipeline = 3, "those of all forward stages of a pipeline."


class RecomputeType(Enumeration):
    """Whether one operation is computed again in the backward pass."""

    Undefined = 0, "nothing is said."
    Checkpoint = 1, "its results are kept."
    Recompute = 2, "it is computed again."
    Recomputed = 3, "it is the operation that does so."


class TensorStorage(Enumeration):
    """Where a tensor is kept."""

    OnChip = 0, "in the memory of the IPU."
    OffChip = 1, "in streaming memory."


class TileSet(Enumeration):
    """Some tiles of an IPU."""

    Compute = 0, "those that compute."
    IO = 1, "those that are set apart for input and output."


class ReplicatedTensorSharding(Enumeration):
    """Whether replicas hold a part of a tensor each, and not all of it."""

    Off = 0, "no."
    On = 1, "yes."


class ExecutionPhaseIOSchedule(Enumeration):
    """When tensors are loaded for an execution phase."""

    Preload = 0, "in the phase before."
    OnDemand = 1, "in the phase itself."


class ExecutionPhaseSchedule(Enumeration):
    """In which order the weights of an execution phase are updated."""

    Interleaving = 0, "one weight after the other."
    Batch = 1, "each step of an update for all weights."
    BatchClusteredIO = 2, "like `Batch`, with loads and stores kept together."


class AccumulateOuterFragmentSchedule(Enumeration):
    """In which order operations that follow the accumulation of gradients run."""

    Scheduler = 0, "in an order that the scheduler chooses."
    Serial = 1, "one virtual graph after the other."
    OverlapCycleOptimized = 2, "virtual graphs at the same time, as far as possible."
    OverlapMemoryOptimized = 3, "likewise, except for what takes much memory."


class SyncPattern(Enumeration):
    """Which IPUs wait for each other."""

    Full = 0, "all IPUs."
    SinglePipeline = 1, "each IPU for its neighbours in a pipeline."
    ReplicaAndLadder = 2, "the IPUs of a replica."


class MergeVarUpdateType(Enumeration):
    """Which updates of weights are merged."""

    Off = 0, "none."
    All = 1, "as many as possible."
    AutoTight = 3, "into groups of exactly `mergeVarUpdateMemThreshold` bytes."
    AutoLoose = 2, "into groups of whole weights, without more memory."


class VirtualGraphMode(Enumeration):
    """How operations are put on IPUs."""

    Off = 0, "all on one IPU."
    Manual = 1, "each by its `virtualGraph` attribute."
    Auto = 2, "by their costs."
    ExecutionPhases = 3, "by their execution phases."


class SyntheticDataMode(Enumeration):
    """What inputs hold if nothing is copied between host and device."""

    Off = 0, "data is copied."
    Zeros = 1, "zeros."
    RandomNormal = 2, "normally distributed random numbers."


class IrSerializationFormat(Enumeration):
    """The form in which a graph is written."""

    JSON = 0, "as JSON."


class Instrumentation(Enumeration):
    """What a cycle counter counts."""

    Outer = 0, "the outer loop, on all IPUs."
    Inner = 1, "inner loops, on each IPU."


class PreAliasPatternType(Enumeration):
    """Numbers of patterns; see `Patterns`."""

    PreUniRepl = 0
    PostNRepl = 1
    SoftmaxGradDirect = 2
    NLLLWithSoftmaxGradDirect = 3
    OptoIdentity = 4
    SubtractArg1GradOp = 5
    MulArgGradOp = 6
    ReciprocalGradOp = 7
    SinGradOp = 8
    CosGradOp = 9
    DivArg0GradOp = 10
    DivArg1GradOp = 11
    PowArg0GradOp = 12
    PowArg1GradOp = 13
    Atan2Arg0GradOp = 14
    Atan2Arg1GradOp = 15
    SqrtGradOp = 16
    ExpGradOp = 17
    Expm1GradOp = 18
    NegativeOneScale = 19
    MatMulOp = 20
    MatMulLHSGradOp = 21
    MatMulRHSGradOp = 22
    Log1pGradOp = 23
    FmodArg0GradOp = 24


class DeviceType(Enumeration):
    """Kinds of devices."""

    IpuModel = 0, "a model of an IPU."
    Cpu = 1, "the host."
    Ipu = 2, "IPUs of the machine."
    OfflineIpu = 3, "IPUs that are not there; programs are compiled for them."
    Sim = 4, "a simulator."


class DeviceConnectionType(Enumeration):
    """When a device is attached."""

    Always = 0, "when it is acquired."
    OnDemand = 1, "when it is needed."
    Never = 2, "never; programs are only compiled for it."


class DeviceSelectionCriterion(Enumeration):
    """Which of the devices that fit is acquired."""

    First = 0, "the first one."
    Random = 1, "any of them."


class CommGroupType(Enumeration):
    """Which replicas take part in a collective operation together."""

    All = 0, "all replicas."
    Consecutive = 1, "groups of replicas that follow each other."
    Orthogonal = 2, "the replicas at the same place in each such group."


_SYNC_PATTERNS = {
    "full": SyncPattern.Full,
    "singlePipeline": SyncPattern.SinglePipeline,
    "replicaAndLadder": SyncPattern.ReplicaAndLadder,
}


def syncPatternFromString(name: str) -> SyncPattern:
    """Returns the sync pattern of a name.

    Args:
        name: `"full"`, `"singlePipeline"` or `"replicaAndLadder"`.

    Raises:
        popart_exception: There is no sync pattern of this name.

    Example:

    >>> syncPatternFromString("full")
    <SyncPattern.Full: 0>
    """
    if not isinstance(name, str) or name not in _SYNC_PATTERNS:
        raise popart_exception(
            f"Unknown sync pattern setting. Received: {name!r}; it must be one of "
            f"{', '.join(map(repr, _SYNC_PATTERNS))}."
        )
    return _SYNC_PATTERNS[name]


def syncPatternToString(pattern: SyncPattern) -> str:
    """Returns the name of a sync pattern, as `syncPatternFromString` takes it.

    Args:
        pattern: A member of `SyncPattern`.

    Raises:
        TypeError: `pattern` is no `SyncPattern`.

    Example:

    >>> syncPatternToString(SyncPattern.SinglePipeline)
    'singlePipeline'
    """
    for name, each in _SYNC_PATTERNS.items():
        if each is pattern:
            return name
    raise TypeError(f"`pattern` must be a SyncPattern. Received: pattern={pattern!r}")


__all__ = [
    name
    for name, each in globals().items()
    if getattr(each, "__module__", "") == __name__ and each is not Enumeration
]

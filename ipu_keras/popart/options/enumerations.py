"""The enumerations of PopART, with the values that they have there."""

import enum

from ipu_keras.popart.exceptions import popart_exception


class Enumeration(enum.Enum):
    """Members print as `VirtualGraphMode.Manual`, and `int` gives their numbers."""

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
    """What a new tensor holds.

    * `NoInit`: whatever its memory holds.
    * `Zero`: zeros.
    """

    NoInit = 0
    Zero = 1


class AnchorReturnTypeId(Enumeration):
    """Which values of an anchor a step returns.

    * `Final`: the value of the last batch.
    * `EveryN`: the value of each n-th batch.
    * `All`: the values of all batches.
    * `Sum`: the sum of the values of all batches.
    """

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3


class ReductionType(Enumeration):
    """How the elements of a loss, or gradients, are reduced to one.

    * `Mean`: their mean.
    * `NoReduction`: they are not reduced.
    * `Sum`: their sum.
    """

    Mean = 1
    NoReduction = 2
    Sum = 0


class ScatterReduction(Enumeration):
    """How values that are scattered to the same place are reduced.

    * `Sum`: they are added.
    """

    Sum = 0


class WeightDecayMode(Enumeration):
    """How weights decay.

    * `Decay`: directly, beside the update by gradients.
    * `L2Regularization`: as a part of their gradients.
    """

    Decay = 0
    L2Regularization = 1


class SGDAccumulatorAndMomentum(Enumeration):
    """Where SGD accumulates gradients.

    * `Combined`: in the momentum.
    * `Separate`: in a tensor of their own.
    """

    Combined = 0
    Separate = 1


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
    """When batches are serialised.

    * `Forward`, `Fwd`: before the backward pass is made.
    * `Backward`, `Bwd`: after that.
    """

    Forward = 0
    Backward = 1
    Fwd = 0
    Bwd = 1


class BatchSerializationMethod(Enumeration):
    """How batches are serialised.

    * `UnrollDynamic`: one after the other, by slices whose place is computed.
    * `UnrollStatic`: one after the other, by slices whose place is known.
    * `Loop`: in a loop.
    """

    UnrollDynamic = 0
    UnrollStatic = 1
    Loop = 2


class BatchSerializationBatchSchedule(Enumeration):
    """In which order the operations of serialised batches run.

    * `Scheduler`: in an order that the scheduler chooses, one batch after the other.
    * `Isomorphic`: in the same order in each batch.
    * `OverlapOnIo`: with loads of the next batch right after this one's computation.
    * `OverlapOnCompute`: with loads of the next batch right before this one's computation.
    """

    Scheduler = 0
    Isomorphic = 1
    OverlapOnIo = 2
    OverlapOnCompute = 3


class AutodiffStitchStrategy(Enumeration):
    """Where a backward graph gets the values of the forward graph that it needs.

    * `RecomputeMinimal`: it recomputes all values that are no inputs or outputs.
    * `RecomputeAllNonInputs`: it recomputes all values that are no inputs.
    * `AddFwdOutputs`: the values become outputs of the forward graph.
    * `SafeAddFwdOutputs`: they become outputs where that is possible, and are recomputed elsewhere.
    """

    RecomputeMinimal = 0
    RecomputeAllNonInputs = 1
    AddFwdOutputs = 2
    SafeAddFwdOutputs = 3


class SubgraphCopyingStrategy(Enumeration):
    """When inputs and outputs of subgraphs are copied.

    * `OnEnterAndExit`: all inputs before the subgraph, all outputs after it.
    * `JustInTime`: inputs before they are used, outputs as soon as they are there.
    """

    OnEnterAndExit = 0
    JustInTime = 1


class PatternsLevel(Enumeration):
    """Which patterns are enabled.

    * `All`: all.
    * `Default`: those that are on by default.
    * `Minimal`: those without which operations could not be run.
    * `NoPatterns`: none.
    """

    All = 3
    Default = 2
    Minimal = 1
    NoPatterns = 0


class DotCheck(Enumeration):
    """When a `.dot` file of the graph is written.

    * `Fwd0`: once the forward pass is there.
    * `Fwd1`: after patterns have been applied to that.
    * `Bwd0`: once the backward pass is there.
    * `PreAlias`: after everything but aliasing.
    * `Final`: at the end.
    """

    Fwd0 = 0
    Fwd1 = 1
    Bwd0 = 2
    PreAlias = 3
    Final = 4


class RecomputationType(Enumeration):
    """Which operations are computed again in the backward pass.

    * `NoRecompute`: none.
    * `Standard`: those that leave the least memory live.
    * `NormOnly`: normalisations, and activations that follow them.
    * `Pipeline`: those of all forward stages of a pipeline.
    """

    NoRecompute = 0
    Standard = 1
    NormOnly = 2
    Pipeline = 3


class RecomputeType(Enumeration):
    """Whether one operation is computed again in the backward pass.

    * `Undefined`: nothing is said.
    * `Checkpoint`: its results are kept.
    * `Recompute`: it is computed again.
    * `Recomputed`: it is the operation that does so.
    """

    Undefined = 0
    Checkpoint = 1
    Recompute = 2
    Recomputed = 3


class TensorStorage(Enumeration):
    """Where a tensor is kept.

    * `OnChip`: in the memory of the IPU.
    * `OffChip`: in streaming memory.
    """

    OnChip = 0
    OffChip = 1


class TileSet(Enumeration):
    """Some tiles of an IPU.

    * `Compute`: those that compute.
    * `IO`: those that are set apart for input and output.
    """

    Compute = 0
    IO = 1


class ReplicatedTensorSharding(Enumeration):
    """Whether replicas hold a part of a tensor each, and not all of it.

    * `Off`: no.
    * `On`: yes.
    """

    Off = 0
    On = 1


class ExecutionPhaseIOSchedule(Enumeration):
    """When tensors are loaded for an execution phase.

    * `Preload`: in the phase before.
    * `OnDemand`: in the phase itself.
    """

    Preload = 0
    OnDemand = 1


class ExecutionPhaseSchedule(Enumeration):
    """In which order the weights of an execution phase are updated.

    * `Interleaving`: one weight after the other.
    * `Batch`: each step of an update for all weights.
    * `BatchClusteredIO`: like `Batch`, with loads and stores kept together.
    """

    Interleaving = 0
    Batch = 1
    BatchClusteredIO = 2


class AccumulateOuterFragmentSchedule(Enumeration):
    """In which order operations that follow the accumulation of gradients run.

    * `Scheduler`: in an order that the scheduler chooses.
    * `Serial`: one virtual graph after the other.
    * `OverlapCycleOptimized`: virtual graphs at the same time, as far as possible.
    * `OverlapMemoryOptimized`: likewise, except for what takes much memory.
    """

    Scheduler = 0
    Serial = 1
    OverlapCycleOptimized = 2
    OverlapMemoryOptimized = 3


class SyncPattern(Enumeration):
    """Which IPUs wait for each other.

    * `Full`: all IPUs.
    * `SinglePipeline`: each IPU for its neighbours in a pipeline.
    * `ReplicaAndLadder`: the IPUs of a replica.
    """

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class MergeVarUpdateType(Enumeration):
    """Which updates of weights are merged.

    * `Off`: none.
    * `All`: as many as possible.
    * `AutoTight`: into groups of exactly `mergeVarUpdateMemThreshold` bytes.
    * `AutoLoose`: into groups of whole weights, without more memory.
    """

    Off = 0
    All = 1
    AutoTight = 3
    AutoLoose = 2


class VirtualGraphMode(Enumeration):
    """How operations are put on IPUs.

    * `Off`: all on one IPU.
    * `Manual`: each by its `virtualGraph` attribute.
    * `Auto`: by their costs.
    * `ExecutionPhases`: by their execution phases.
    """

    Off = 0
    Manual = 1
    Auto = 2
    ExecutionPhases = 3


class SyntheticDataMode(Enumeration):
    """What inputs hold if nothing is copied between host and device.

    * `Off`: data is copied.
    * `Zeros`: zeros.
    * `RandomNormal`: normally distributed random numbers.
    """

    Off = 0
    Zeros = 1
    RandomNormal = 2


class IrSerializationFormat(Enumeration):
    """The form in which a graph is written.

    * `JSON`: as JSON.
    """

    JSON = 0


class Instrumentation(Enumeration):
    """What a cycle counter counts.

    * `Outer`: the outer loop, on all IPUs.
    * `Inner`: inner loops, on each IPU.
    """

    Outer = 0
    Inner = 1


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
    """Kinds of devices.

    * `IpuModel`: a model of an IPU.
    * `Cpu`: the host.
    * `Ipu`: IPUs of the machine.
    * `OfflineIpu`: IPUs that are not there; programs are compiled for them.
    * `Sim`: a simulator.
    """

    IpuModel = 0
    Cpu = 1
    Ipu = 2
    OfflineIpu = 3
    Sim = 4


class DeviceConnectionType(Enumeration):
    """When a device is attached.

    * `Always`: when it is acquired.
    * `OnDemand`: when it is needed.
    * `Never`: never; programs are only compiled for it.
    """

    Always = 0
    OnDemand = 1
    Never = 2


class DeviceSelectionCriterion(Enumeration):
    """Which of the devices that fit is acquired.

    * `First`: the first one.
    * `Random`: any of them.
    """

    First = 0
    Random = 1


class CommGroupType(Enumeration):
    """Which replicas take part in a collective operation together.

    * `All`: all replicas.
    * `Consecutive`: groups of replicas that follow each other.
    * `Orthogonal`: the replicas at the same place in each such group.
    """

    All = 0
    Consecutive = 1
    Orthogonal = 2


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

"""The options of a session."""

from typing import Any

from ipu_keras.popart.options.enumerations import (
    DotCheck,
    Instrumentation,
    MergeVarUpdateType,
    RecomputationType,
    ReductionType,
    SubgraphCopyingStrategy,
    SyntheticDataMode,
    VirtualGraphMode,
)
from ipu_keras.popart.options.kinds import (
    BOOL,
    NUMBER,
    TEXT,
    Kind,
    choice,
    dict_of,
    integer,
    list_of,
    one_of,
    set_of,
)
from ipu_keras.popart.options.option import Effect, Option, Settings
from ipu_keras.popart.options.settings import (
    AccumulateOuterFragmentSettings,
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    ExecutionPhaseSettings,
    NumIOTiles,
    TensorLocation,
    TensorLocationSettings,
)
from ipu_keras.settings.option_warnings import OPTION_WARNINGS


def _dot_check(value: Any) -> DotCheck:
    """Returns a `DotCheck`, also given its name, which later releases of PopART take."""
    if isinstance(value, DotCheck):
        return value
    if isinstance(value, str) and value in DotCheck.__members__:
        return DotCheck[value]
    raise TypeError


def _io_tiles(value: Any) -> int:
    return integer(0).take(int(value) if isinstance(value, NumIOTiles) else value)


# Reasons why options change nothing, which warnings and the table in docs/popart.md show.
_ONE_PROCESS = "Each process has an emulated machine of its own."
_NO_PASS = "Models have no such pass."
_ONE_ORDER = "Models have one order: as traced, but for what frees memory."
_UPDATES = "Models update each weight for itself."
_NO_CODE = "No code is compiled for IPUs."
_AHEAD = "All inputs of a step are there before it begins."
_ONE_COPY = "In models, all inputs of a step are one copy."
_SHARED = "Models share the code of what `aiGraphcore.call` calls, whatever that is worth."

DOT_CHECK = Kind("a DotCheck or its name", _dot_check)
IO_TILES = Kind("an int or a NumIOTiles", _io_tiles, integer(0).check)


class SessionOptions(Settings):
    """How a session computes a model, and what it would cost on IPUs.

    Values are checked when they are assigned, as are single items of options that are dicts,
    lists and sets. A session works with the options as they are when it is made.

    Example:

    >>> options = SessionOptions()
    >>> options.enableGradientAccumulation = True
    >>> options.accumulationFactor = 4
    >>> options.engineOptions["autoReport.all"] = "true"
    """

    def __init__(self) -> None:
        super().__init__()

    # How often a model is on the machine, and which IPUs compute what.

    enableReplicatedGraphs = Option(
        BOOL, False, "Whether there are `replicatedGraphCount` replicas.", Effect.RESULTS
    )
    replicatedGraphCount = Option(
        integer(1),
        1,
        "Replicas of the model; the IPUs of the device are divided among them.",
        Effect.RESULTS,
    )
    enableDistributedReplicatedGraphs = Option(
        BOOL, False, "Whether other processes have replicas as well.", Effect.NONE, _ONE_PROCESS
    )
    globalReplicationFactor = Option(
        integer(1), 1, "Replicas of all processes together.", Effect.NONE, _ONE_PROCESS
    )
    globalReplicaOffset = Option(
        integer(0), 0, "The number of this process's first replica.", Effect.NONE, _ONE_PROCESS
    )
    virtualGraphMode = Option(
        one_of(VirtualGraphMode),
        VirtualGraphMode.Off,
        "How operations are put on IPUs: as they say (`Manual`), in parts (`Auto`), or all on one.",
        Effect.RESULTS,
    )
    enablePipelining = Option(
        BOOL,
        False,
        "Whether the stages of a model compute different batches at the same time. Training "
        "then needs gradient accumulation.",
        Effect.RESULTS,
    )

    # What a batch is.

    enableGradientAccumulation = Option(
        BOOL, False, "Whether a batch has `accumulationFactor` micro-batches.", Effect.RESULTS
    )
    accumulationFactor = Option(
        integer(1),
        1,
        "Micro-batches whose gradients are accumulated before an update.",
        Effect.TRAINING,
    )
    accumulationAndReplicationReductionType = Option(
        one_of(ReductionType),
        ReductionType.Sum,
        "Whether the gradients of micro-batches and replicas are added or averaged.",
        Effect.TRAINING,
    )
    batchSerializationSettings = Option(
        one_of(BatchSerializationSettings),
        BatchSerializationSettings(),
        "How batches are computed in parts. Masks of dropout change with it.",
        Effect.NONE,
        _NO_PASS,
    )
    automaticLossScalingSettings = Option(
        one_of(AutomaticLossScalingSettings),
        AutomaticLossScalingSettings(),
        "How the loss is scaled by what its gradients are like. The optimizer's scaling of it must "
        "then not be constant.",
        Effect.TRAINING,
    )
    disableGradAccumulationTensorStreams = Option(
        BOOL,
        False,
        "Whether accumulated gradients are left on the device, and so are not in models that "
        "are written.",
        Effect.NONE,
        "Accumulators are empty between batches, so no model that is written has them.",
    )

    # Data.

    syntheticDataMode = Option(
        one_of(SyntheticDataMode),
        SyntheticDataMode.Off,
        "What inputs hold instead of data; nothing is then copied, and anchors are not written.",
        Effect.RESULTS,
    )
    constantWeights = Option(
        BOOL,
        True,
        "Whether an inference session may take its weights for constants. They then cannot be "
        "replaced.",
        Effect.RESULTS,
    )
    enableSupportedDataTypeCasting = Option(
        BOOL,
        True,
        "Whether 64-bit types of inputs and weights are narrowed to those that an IPU has; models "
        "with such are refused otherwise.",
        Effect.RESULTS,
    )
    enablePrefetchDatastreams = Option(
        BOOL, True, "Whether inputs are fetched before they are needed.", Effect.NONE, _AHEAD
    )
    defaultPrefetchBufferingDepth = Option(
        integer(1), 1, "How many inputs are fetched in advance.", Effect.NONE, _AHEAD
    )
    prefetchBufferingDepthMap = Option(
        dict_of(integer(1)), {}, "How many are, by name of the input.", Effect.NONE, _AHEAD
    )
    rearrangeAnchorsOnHost = Option(
        BOOL,
        True,
        "Whether anchors are put in order on the host, and not on the device.",
        Effect.NONE,
        "Models of host copies have no layouts.",
    )
    groupHostSync = Option(
        BOOL,
        False,
        "Whether all inputs are copied at the beginning of a step, and all anchors at its end.",
        Effect.NONE,
        _ONE_COPY,
    )
    hostAllReduce = Option(
        BOOL,
        False,
        "Whether gradients go to callbacks of the host after each batch, and come back from them, "
        "by `connectStreamToCallback`.",
        Effect.TRAINING,
    )
    hostWeightUpdate = Option(
        BOOL,
        False,
        "Whether these callbacks give weights back, in place of gradients for the optimizer; "
        "`hostAllReduce` has to be set.",
        Effect.TRAINING,
    )
    hostAllReduceRemoteBuffer = Option(
        BOOL,
        False,
        "Whether `hostAllReduce` uses remote buffers.",
        Effect.NONE,
        "Models of host copies have one kind of memory.",
    )

    # Numbers.

    enableStochasticRounding = Option(
        BOOL,
        False,
        "Whether results in half precision are rounded at random.",
        Effect.NONE,
        "The host computes, and rounds to nearest.",
    )
    enableFloatingPointChecks = Option(
        BOOL,
        False,
        "Whether a run fails in which a result of a node is infinite or no number. The error names "
        "the first such node. Reports then count what finds it, too.",
        Effect.RESULTS,
    )
    enableNonStableSoftmax = Option(
        BOOL,
        False,
        "Whether softmax leaves out what keeps it from overflowing: then results of large numbers "
        "are no numbers, and it costs less.",
        Effect.RESULTS,
    )
    enableStableNorm = Option(
        BOOL,
        False,
        "Whether variances are computed after the mean was subtracted.",
        Effect.NONE,
        "The host subtracts the mean first anyway, and models cost the faster way.",
    )
    groupNormStridedChannelGrouping = Option(
        BOOL,
        False,
        "Whether groups of group normalisations are every so many channels, and not neighbours.",
        Effect.RESULTS,
    )
    partialsTypeMatMuls = Option(
        choice("", "float", "half"),
        "",
        "The type of the partial sums of matrix products; that of their inputs if it is empty.",
        Effect.MODEL,
    )
    strictOpVersions = Option(
        BOOL,
        True,
        "Whether an operation must be there in the version of its opset.",
        Effect.NONE,
        "All operations are there, in all versions.",
    )
    enableLoadAndOffloadRNGState = Option(
        BOOL, False, "Whether the state of random numbers can be read and set.", Effect.RESULTS
    )

    # Compiling.

    compileEngine = Option(
        BOOL, True, "Whether the program can run. If not it is only modelled.", Effect.RESULTS
    )
    enableEngineCaching = Option(
        BOOL, False, "Whether compiled programs are kept in `cachePath`.", Effect.RESULTS
    )
    cachePath = Option(TEXT, "session_cache", "Where compiled programs are kept.", Effect.RESULTS)
    engineOptions = Option(
        dict_of(TEXT),
        {},
        "Options of the engine: reports, and whether a program may be too large.",
        Effect.RESULTS,
    )
    convolutionOptions = Option(
        dict_of(TEXT),
        {},
        "Options of convolutions, such as `availableMemoryProportion`.",
        Effect.MODEL,
    )
    lstmOptions = Option(
        dict_of(TEXT),
        {},
        "Options of LSTMs, such as `availableMemoryProportion`.",
        Effect.NONE,
        "Models plan products in LSTMs as all others: `partialsTypeMatMuls` counts for them.",
    )
    reportOptions = Option(
        dict_of(TEXT), {}, "Options of reports.", Effect.NONE, "Reports have all that models know."
    )
    gclOptions = Option(
        dict_of(TEXT),
        {},
        "Options of the communication between IPUs.",
        Effect.NONE,
        "Models cost each kind of collective in one way.",
    )
    instrumentWithHardwareCycleCounter = Option(
        BOOL,
        False,
        "Whether `getCycleCount` can be asked for the cycles of a step.",
        Effect.RESULTS,
    )
    hardwareInstrumentations = Option(
        set_of(one_of(Instrumentation)),
        {Instrumentation.Outer},
        "What the cycle counter counts.",
        Effect.NONE,
        "There is one counter, of a whole step.",
    )

    # Memory and time on IPUs.

    autoRecomputation = Option(
        one_of(RecomputationType),
        RecomputationType.NoRecompute,
        "Which operations are computed again in the backward pass, to need less memory: in models "
        "those of TensorFlow's `allow_recompute`, whichever are asked for. Sessions refuse to "
        "choose for models with nodes that say it.",
        Effect.TRAINING,
    )
    explicitRecomputation = Option(
        BOOL,
        False,
        "Whether these are operations of the graph.",
        Effect.NONE,
        "What is computed again belongs to the schedule, and not to the graph.",
    )
    enableOutlining = Option(
        BOOL,
        True,
        "Whether all calls of a graph by `aiGraphcore.call` share its code.",
        Effect.MODEL,
    )
    outlineThreshold = Option(
        NUMBER,
        1.0,
        "What a part must be worth to be shared; all are if it is negative.",
        Effect.NONE,
        _SHARED,
    )
    subgraphCopyingStrategy = Option(
        one_of(SubgraphCopyingStrategy),
        SubgraphCopyingStrategy.OnEnterAndExit,
        "When inputs and outputs of shared parts are copied.",
        Effect.NONE,
        "In models, calls work on the tensors that they are given.",
    )
    mergeVarUpdate = Option(
        one_of(MergeVarUpdateType),
        MergeVarUpdateType.Off,
        "Which updates of weights are merged.",
        Effect.NONE,
        _UPDATES,
    )
    mergeVarUpdateMemThreshold = Option(
        integer(0), 1000000, "How many bytes of weights are merged.", Effect.NONE, _UPDATES
    )
    decomposeGradSum = Option(
        BOOL, False, "Whether sums of many gradients are trees of additions.", Effect.NONE, _NO_PASS
    )
    enableFullyConnectedPass = Option(
        BOOL,
        True,
        "Whether products of the forward and backward pass share the layout of their weights.",
        Effect.NONE,
        "Models plan each matrix product for itself.",
    )
    enableGroupedMatmuls = Option(
        BOOL,
        True,
        "Whether matrix products of the same shape are computed together.",
        Effect.NONE,
        _NO_PASS,
    )
    numIOTiles = Option(
        IO_TILES, 0, "Tiles of each IPU that are set apart for input and output.", Effect.MODEL
    )
    executionPhaseSettings = Option(
        one_of(ExecutionPhaseSettings),
        ExecutionPhaseSettings(),
        "How a model is computed in phases, with tensors loaded for each.",
        Effect.NONE,
        "Models have pipelines, and no phases.",
    )
    accumulateOuterFragmentSettings = Option(
        one_of(AccumulateOuterFragmentSettings),
        AccumulateOuterFragmentSettings(),
        "How what follows the accumulation of gradients runs.",
        Effect.NONE,
        _ONE_ORDER,
    )
    activationTensorLocationSettings = Option(
        one_of(TensorLocationSettings),
        TensorLocationSettings(),
        "Where activations wait for their gradients, in pipelines that train; of any size.",
        Effect.MODEL,
    )
    weightTensorLocationSettings = Option(
        one_of(TensorLocationSettings),
        TensorLocationSettings(),
        "Where weights are kept: pipelines of several replicas can share them, and keep the parts "
        "in remote memory.",
        Effect.MODEL,
    )
    optimizerStateTensorLocationSettings = Option(
        one_of(TensorLocationSettings),
        TensorLocationSettings(),
        "Where the optimizer's state is kept, in pipelines.",
        Effect.TRAINING,
    )
    accumulatorTensorLocationSettings = Option(
        one_of(TensorLocationSettings),
        TensorLocationSettings(),
        "Where accumulated gradients are kept, in pipelines.",
        Effect.TRAINING,
    )
    tensorLocationSettingsOverride = Option(
        dict_of(one_of(TensorLocation)),
        {},
        "Where single tensors are kept, by name.",
        Effect.NONE,
        "Models have places for kinds of tensors, and not for single ones.",
    )

    # Files.

    dotChecks = Option(
        set_of(DOT_CHECK), set(), "When `.dot` files of the graph are written.", Effect.FILES
    )
    dotOpNames = Option(
        BOOL, False, "Whether they have the names of operations beside their kinds.", Effect.FILES
    )
    firstDotOp = Option(
        integer(-(2**63)), 0, "The first operation of the schedule that they have.", Effect.FILES
    )
    finalDotOp = Option(
        integer(-(2**63)),
        10000,
        "The operation of the schedule before which they end.",
        Effect.FILES,
    )
    logDir = Option(
        TEXT, "", "The directory for them; the current one if it is empty.", Effect.FILES
    )

    # What IPUs have and the emulator has not.

    aliasZeroCopy = Option(
        BOOL,
        False,
        "Whether shared parts work on tensors in place.",
        Effect.NONE,
        "In models, calls work on the tensors that they are given.",
    )
    customCodelets = Option(
        list_of(TEXT), [], "Files of vertices that are added to the graph.", Effect.NONE, _NO_CODE
    )
    customCodeletCompileFlags = Option(TEXT, "", "How they are compiled.", Effect.NONE, _NO_CODE)
    enableOutliningCopyCostPruning = Option(
        BOOL, True, "Whether outlining counts copies.", Effect.NONE, _SHARED
    )
    outlineSequenceBreakCost = Option(
        NUMBER, 10000.0, "What it costs outlining to break sequences up.", Effect.NONE, _SHARED
    )
    kahnTieBreaker = Option(
        TEXT,
        "greedy",
        "Which of the operations that could come next does.",
        Effect.NONE,
        _ONE_ORDER,
    )
    timeLimitScheduler = Option(
        NUMBER, 1e9, "For how many seconds a better order is looked for.", Effect.NONE, _ONE_ORDER
    )
    swapLimitScheduler = Option(
        integer(-(2**63)),
        1000000000,
        "In how many steps a better order is looked for.",
        Effect.NONE,
        _ONE_ORDER,
    )
    transitiveClosureOptimizationThreshold = Option(
        integer(0),
        100000,
        "Up to how many operations the scheduler simplifies a graph.",
        Effect.NONE,
        _ONE_ORDER,
    )
    serializedPoprithmsShiftGraphsDir = Option(
        TEXT, "", "Where the scheduler's graphs are written.", Effect.NONE, _ONE_ORDER
    )
    serializedPoprithmsAnnealGraphsDir = Option(
        TEXT,
        "",
        "Where the scheduler's graphs are written, by their older name.",
        Effect.NONE,
        _ONE_ORDER,
    )
    exportPoplarComputationGraph = Option(
        BOOL,
        False,
        "Whether Poplar's computation graph is written.",
        Effect.NONE,
        "There is no graph of Poplar.",
    )
    exportPoplarVertexGraph = Option(
        BOOL,
        False,
        "Whether Poplar's vertex graph is written.",
        Effect.NONE,
        "There is no graph of Poplar.",
    )
    separateCallOpPdfs = Option(
        BOOL,
        True,
        "Whether pictures of graphs are one for each shared part.",
        Effect.NONE,
        "Pictures have the main graph, where a call is one node.",
    )
    opxAliasChecking = Option(
        BOOL,
        False,
        "Whether the compiler checks which tensors share memory.",
        Effect.NONE,
        "There is no compiler of PopART to check.",
    )
    opxModifyChecking = Option(
        BOOL,
        False,
        "Whether the compiler checks which tensors are modified.",
        Effect.NONE,
        "There is no compiler of PopART to check.",
    )
    useHostCopyOps = Option(
        BOOL,
        False,
        "Whether copies from and to the host are operations of the graph.",
        Effect.NONE,
        _ONE_COPY,
    )
    enableExplicitMainLoops = Option(
        BOOL,
        False,
        "Whether the loops over batches are operations of the graph, which needs `useHostCopyOps`.",
        Effect.NONE,
        "Loops over batches belong to the program, and not to the graph.",
    )


def warn_of_idle(options: SessionOptions) -> None:
    """Warns of options that were set and change nothing; a session calls it when it is made.

    Raises a `TypeError` if they are no `SessionOptions`.
    """
    if not isinstance(options, SessionOptions):
        raise TypeError(
            "`userOptions` must be popart.SessionOptions. Received: "
            f"userOptions={options!r} of type {type(options).__name__}"
        )
    OPTION_WARNINGS.warn(
        "SessionOptions",
        {name: option.why_idle for name, option in _set_with(options, Effect.NONE).items()},
        lambda names: (
            f"These options are set but have no meaning here: {names}. They change neither what a "
            "session computes nor what it would cost; leave them out."
        ),
        stacklevel=4,
    )


def _set_with(options: SessionOptions, effect: Effect) -> dict[str, Option]:
    """Returns the options with an effect that differ from their defaults."""
    return {
        name: option
        for name, option in SessionOptions.options().items()
        if option.effect is effect and getattr(options, name) != option.default
    }

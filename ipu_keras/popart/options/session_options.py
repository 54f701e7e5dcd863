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
    TEXT,
    Kind,
    choice,
    dict_of,
    integer,
    list_of,
    one_of,
    set_of,
)
from ipu_keras.popart.options.option import Effect, Setting, Settings
from ipu_keras.popart.options.settings import (
    AccumulateOuterFragmentSettings,
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    ExecutionPhaseSettings,
    NumIOTiles,
    TensorLocation,
    TensorLocationSettings,
)
from ipu_keras.settings import idle_reasons as why
from ipu_keras.settings.option import idle_options
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


DOT_CHECK = Kind("a DotCheck or its name", _dot_check)
IO_TILES = Kind("an int or a NumIOTiles", _io_tiles, integer(0).constraint)


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

    enableReplicatedGraphs = Setting(
        False, "Whether there are `replicatedGraphCount` replicas.", Effect.RESULTS
    )
    replicatedGraphCount = Setting(
        1,
        "Replicas of the model; the IPUs of the device are divided among them.",
        Effect.RESULTS,
        kind=integer(1),
    )
    enableDistributedReplicatedGraphs = Setting(
        False, "Whether other processes have replicas as well.", Effect.RESULTS
    )
    globalReplicationFactor = Setting(
        1, "Replicas of all processes together.", Effect.RESULTS, kind=integer(1)
    )
    globalReplicaOffset = Setting(0, "The number of this process's first replica.", Effect.RESULTS)
    virtualGraphMode = Setting(
        VirtualGraphMode.Off,
        "How operations are put on IPUs: as they say (`Manual`), in parts (`Auto`), or all on one.",
        Effect.RESULTS,
    )
    enablePipelining = Setting(
        False,
        "Whether the stages of a model compute different batches at the same time. Training "
        "then needs gradient accumulation.",
        Effect.RESULTS,
    )

    # What a batch is.

    enableGradientAccumulation = Setting(
        False, "Whether a batch has `accumulationFactor` micro-batches.", Effect.RESULTS
    )
    accumulationFactor = Setting(
        1,
        "Micro-batches whose gradients are accumulated before an update.",
        Effect.TRAINING,
        kind=integer(1),
    )
    accumulationAndReplicationReductionType = Setting(
        ReductionType.Sum,
        "Whether the gradients of micro-batches and replicas are added or averaged.",
        Effect.TRAINING,
    )
    batchSerializationSettings = Setting(
        BatchSerializationSettings(),
        "How batches are computed in parts. Masks of dropout change with it.",
        why_idle=why.NO_PASS,
    )
    automaticLossScalingSettings = Setting(
        AutomaticLossScalingSettings(),
        "How the loss is scaled by what its gradients are like. The optimizer's scaling of it must "
        "then not be constant.",
        Effect.TRAINING,
    )
    disableGradAccumulationTensorStreams = Setting(
        False,
        "Whether accumulated gradients are left on the device, and so are not in models that "
        "are written.",
        why_idle="Accumulators are empty between batches, so no model that is written has them.",
    )

    # Data.

    syntheticDataMode = Setting(
        SyntheticDataMode.Off,
        "What inputs hold instead of data; nothing is then copied, and anchors are not written.",
        Effect.RESULTS,
    )
    constantWeights = Setting(
        True,
        "Whether an inference session may take its weights for constants. They then cannot be "
        "replaced.",
        Effect.RESULTS,
    )
    enableSupportedDataTypeCasting = Setting(
        True,
        "Whether 64-bit types of inputs and weights are narrowed to those that an IPU has; models "
        "with such are refused otherwise.",
        Effect.RESULTS,
    )
    enablePrefetchDatastreams = Setting(
        True, "Whether inputs are fetched before they are needed.", why_idle=why.THERE_BEFORE
    )
    defaultPrefetchBufferingDepth = Setting(
        1, "How many inputs are fetched in advance.", why_idle=why.THERE_BEFORE, kind=integer(1)
    )
    prefetchBufferingDepthMap = Setting(
        {},
        "How many are, by name of the input.",
        why_idle=why.THERE_BEFORE,
        kind=dict_of(integer(1)),
    )
    rearrangeAnchorsOnHost = Setting(
        True,
        "Whether anchors are put in order on the host, and not on the device.",
        why_idle=why.NO_LAYOUTS,
    )
    groupHostSync = Setting(
        False,
        "Whether all inputs are copied at the beginning of a step, and all anchors at its end.",
        why_idle=why.ONE_COPY,
    )
    hostAllReduce = Setting(
        False,
        "Whether gradients go to callbacks of the host after each batch, and come back from them, "
        "by `connectStreamToCallback`.",
        Effect.TRAINING,
    )
    hostWeightUpdate = Setting(
        False,
        "Whether these callbacks give weights back, in place of gradients for the optimizer; "
        "`hostAllReduce` has to be set.",
        Effect.TRAINING,
    )
    hostAllReduceRemoteBuffer = Setting(
        False,
        "Whether `hostAllReduce` uses remote buffers.",
        why_idle="Models of host copies have one kind of memory.",
    )

    # Numbers.

    enableStochasticRounding = Setting(
        False,
        "Whether results in half precision are rounded at random. `setRandomSeed` starts the "
        "random numbers of a session anew, and `getRNGState` says where they are.",
        Effect.RESULTS,
    )
    enableFloatingPointChecks = Setting(
        False,
        "Whether a run fails in which a result of a node is infinite or no number. The error names "
        "the first such node. Weights are as the step left them, until weightsFromHost. Reports "
        "then count what finds it, too.",
        Effect.RESULTS,
    )
    enableNonStableSoftmax = Setting(
        False,
        "Whether softmax leaves out what keeps it from overflowing: then results of large numbers "
        "are no numbers, and it costs less.",
        Effect.RESULTS,
    )
    enableStableNorm = Setting(
        False,
        "Whether variances are computed after the mean was subtracted.",
        why_idle=why.STABLE_NORM,
    )
    groupNormStridedChannelGrouping = Setting(
        False,
        "Whether groups of group normalisations are every so many channels, and not neighbours.",
        Effect.RESULTS,
    )
    partialsTypeMatMuls = Setting(
        "",
        "The type of the partial sums of matrix products of halves; float if it is empty. After "
        "every 16 products sums of halves are rounded.",
        Effect.RESULTS,
        kind=choice("", "float", "half"),
    )
    strictOpVersions = Setting(
        True,
        "Whether an operation must be there in the version of its opset.",
        why_idle="All operations are there, in all versions.",
    )
    enableLoadAndOffloadRNGState = Setting(
        False, "Whether the state of random numbers can be read and set.", Effect.RESULTS
    )

    # Compiling.

    compileEngine = Setting(
        True, "Whether the program can run. If not it is only modelled.", Effect.RESULTS
    )
    enableEngineCaching = Setting(
        False, "Whether compiled programs are kept in `cachePath`.", Effect.RESULTS
    )
    cachePath = Setting("session_cache", "Where compiled programs are kept.", Effect.RESULTS)
    engineOptions = Setting(
        {},
        "Options of the engine: reports, and whether a program may be too large.",
        Effect.RESULTS,
        kind=dict_of(TEXT),
    )
    convolutionOptions = Setting(
        {},
        "Options of convolutions, such as `availableMemoryProportion`, and `partialsType`, as "
        "`partialsTypeMatMuls` is for products.",
        Effect.RESULTS,
        kind=dict_of(TEXT),
    )
    lstmOptions = Setting(
        {},
        "Options of LSTMs, such as `availableMemoryProportion`.",
        why_idle="Models plan products in LSTMs as all others: `partialsTypeMatMuls` counts for "
        "them.",
        kind=dict_of(TEXT),
    )
    reportOptions = Setting(
        {}, "Options of reports.", why_idle="Reports have all that models know.", kind=dict_of(TEXT)
    )
    gclOptions = Setting(
        {},
        "Options of the communication between IPUs.",
        why_idle=why.ONE_COLLECTIVE,
        kind=dict_of(TEXT),
    )
    instrumentWithHardwareCycleCounter = Setting(
        False, "Whether `getCycleCount` can be asked for the cycles of a step.", Effect.RESULTS
    )
    hardwareInstrumentations = Setting(
        {Instrumentation.Outer},
        "What the cycle counter counts.",
        why_idle="There is one counter, of a whole step.",
        kind=set_of(one_of(Instrumentation)),
    )

    # Memory and time on IPUs.

    autoRecomputation = Setting(
        RecomputationType.NoRecompute,
        "Which operations are computed again in the backward pass, to need less memory: in models "
        "those of TensorFlow's `allow_recompute`, whichever are asked for. Sessions refuse to "
        "choose for models with nodes that say it.",
        Effect.TRAINING,
    )
    explicitRecomputation = Setting(
        False,
        "Whether these are operations of the graph.",
        why_idle="What is computed again belongs to the schedule, and not to the graph.",
    )
    enableOutlining = Setting(
        True, "Whether all calls of a graph by `aiGraphcore.call` share its code.", Effect.MODEL
    )
    outlineThreshold = Setting(
        1.0,
        "What a part must be worth to be shared; all are if it is negative.",
        why_idle=why.SHARED,
    )
    subgraphCopyingStrategy = Setting(
        SubgraphCopyingStrategy.OnEnterAndExit,
        "When inputs and outputs of shared parts are copied.",
        why_idle=why.IN_PLACE,
    )
    mergeVarUpdate = Setting(
        MergeVarUpdateType.Off, "Which updates of weights are merged.", why_idle=why.UPDATED_APART
    )
    mergeVarUpdateMemThreshold = Setting(
        1000000, "How many bytes of weights are merged.", why_idle=why.UPDATED_APART
    )
    decomposeGradSum = Setting(
        False, "Whether sums of many gradients are trees of additions.", why_idle=why.NO_PASS
    )
    enableFullyConnectedPass = Setting(
        True,
        "Whether products of the forward and backward pass share the layout of their weights.",
        why_idle="Models plan each matrix product for itself.",
    )
    enableGroupedMatmuls = Setting(
        True,
        "Whether matrix products of the same shape are computed together.",
        why_idle=why.NO_PASS,
    )
    numIOTiles = Setting(
        0, "Tiles of each IPU that are set apart for input and output.", Effect.MODEL, kind=IO_TILES
    )
    executionPhaseSettings = Setting(
        ExecutionPhaseSettings(),
        "How a model is computed in phases, with tensors loaded for each.",
        why_idle="Models have pipelines, and no phases.",
    )
    accumulateOuterFragmentSettings = Setting(
        AccumulateOuterFragmentSettings(),
        "How what follows the accumulation of gradients runs.",
        why_idle=why.ONE_ORDER,
    )
    activationTensorLocationSettings = Setting(
        TensorLocationSettings(),
        "Where activations wait for their gradients, in pipelines that train; of any size.",
        Effect.MODEL,
    )
    weightTensorLocationSettings = Setting(
        TensorLocationSettings(),
        "Where weights are kept: pipelines of several replicas can share them, and keep the parts "
        "in remote memory.",
        Effect.MODEL,
    )
    optimizerStateTensorLocationSettings = Setting(
        TensorLocationSettings(),
        "Where the optimizer's state is kept, in pipelines.",
        Effect.TRAINING,
    )
    accumulatorTensorLocationSettings = Setting(
        TensorLocationSettings(),
        "Where accumulated gradients are kept, in pipelines.",
        Effect.TRAINING,
    )
    tensorLocationSettingsOverride = Setting(
        {},
        "Where single tensors are kept, by name.",
        why_idle="Models have places for kinds of tensors, and not for single ones.",
        kind=dict_of(one_of(TensorLocation)),
    )

    # Files.

    dotChecks = Setting(
        set(), "When `.dot` files of the graph are written.", Effect.FILES, kind=set_of(DOT_CHECK)
    )
    dotOpNames = Setting(
        False, "Whether they have the names of operations beside their kinds.", Effect.FILES
    )
    firstDotOp = Setting(
        0,
        "The first operation of the schedule that they have.",
        Effect.FILES,
        kind=integer(-(2**63)),
    )
    finalDotOp = Setting(
        10000,
        "The operation of the schedule before which they end.",
        Effect.FILES,
        kind=integer(-(2**63)),
    )
    logDir = Setting("", "The directory for them; the current one if it is empty.", Effect.FILES)

    # What IPUs have and the emulator has not.

    aliasZeroCopy = Setting(
        False, "Whether shared parts work on tensors in place.", why_idle=why.IN_PLACE
    )
    customCodelets = Setting(
        [],
        "Files of vertices that are added to the graph.",
        why_idle=why.WITHOUT_CODE,
        kind=list_of(TEXT),
    )
    customCodeletCompileFlags = Setting("", "How they are compiled.", why_idle=why.WITHOUT_CODE)
    enableOutliningCopyCostPruning = Setting(
        True, "Whether outlining counts copies.", why_idle=why.SHARED
    )
    outlineSequenceBreakCost = Setting(
        10000.0, "What it costs outlining to break sequences up.", why_idle=why.SHARED
    )
    kahnTieBreaker = Setting(
        "greedy", "Which of the operations that could come next does.", why_idle=why.ONE_ORDER
    )
    timeLimitScheduler = Setting(
        1e9, "For how many seconds a better order is looked for.", why_idle=why.ONE_ORDER
    )
    swapLimitScheduler = Setting(
        1000000000,
        "In how many steps a better order is looked for.",
        why_idle=why.ONE_ORDER,
        kind=integer(-(2**63)),
    )
    transitiveClosureOptimizationThreshold = Setting(
        100000,
        "Up to how many operations the scheduler simplifies a graph.",
        why_idle=why.ONE_ORDER,
    )
    serializedPoprithmsShiftGraphsDir = Setting(
        "", "Where the scheduler's graphs are written.", why_idle=why.ONE_ORDER
    )
    serializedPoprithmsAnnealGraphsDir = Setting(
        "", "Where the scheduler's graphs are written, by their older name.", why_idle=why.ONE_ORDER
    )
    exportPoplarComputationGraph = Setting(
        False, "Whether Poplar's computation graph is written.", why_idle=why.NO_GRAPH
    )
    exportPoplarVertexGraph = Setting(
        False, "Whether Poplar's vertex graph is written.", why_idle=why.NO_GRAPH
    )
    separateCallOpPdfs = Setting(
        True,
        "Whether pictures of graphs are one for each shared part.",
        why_idle="Pictures have the main graph, where a call is one node.",
    )
    opxAliasChecking = Setting(
        False, "Whether the compiler checks which tensors share memory.", why_idle=why.NO_COMPILER
    )
    opxModifyChecking = Setting(
        False, "Whether the compiler checks which tensors are modified.", why_idle=why.NO_COMPILER
    )
    useHostCopyOps = Setting(
        False,
        "Whether copies from and to the host are operations of the graph.",
        why_idle=why.ONE_COPY,
    )
    enableExplicitMainLoops = Setting(
        False,
        "Whether the loops over batches are operations of the graph, which needs `useHostCopyOps`.",
        why_idle="Loops over batches belong to the program, and not to the graph.",
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
        idle_options(SessionOptions.options(), vars(options)),
        lambda names: (
            f"These options are set but have no meaning here: {names}. They change neither what a "
            "session computes nor what it would cost; leave them out."
        ),
        stacklevel=4,
    )

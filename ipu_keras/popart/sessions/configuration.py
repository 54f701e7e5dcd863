"""What the options of a session mean for its program, and for what that would cost."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ipu_keras.config import IPUConfig
from ipu_keras.machine.numerics import Numerics, families_in_halves
from ipu_keras.machine.system import SYSTEM
from ipu_keras.machine.target import Target
from ipu_keras.popart.exceptions import popart_exception, poplar_exception
from ipu_keras.popart.model.data_types import dtype_on_device, name_of
from ipu_keras.popart.model.graph import Node, OnnxGraph
from ipu_keras.popart.optimizers.rules import Factors
from ipu_keras.popart.options.enumerations import (
    RecomputationType,
    ReductionType,
    SyntheticDataMode,
    VirtualGraphMode,
)
from ipu_keras.popart.options.patterns import warn_of_excluded
from ipu_keras.popart.sessions.contradictions import (
    check_main_loops,
    check_order_of_stages,
    check_recomputation,
)
from ipu_keras.popart.sessions.inferred_places import NOWHERE
from ipu_keras.popart.sessions.locations import (
    least_bytes_elsewhere,
    pipeline_choices,
    warn_of_locations,
)
from ipu_keras.popart.sessions.step import IPU, STAGE, Placement
from ipu_keras.popart.sessions.step_io import Stream
from ipu_keras.program import DeviceChoices, Pipeline
from ipu_keras.settings.engine_options import (
    EngineOptions,
    current_engine_options,
    idle_engine_options,
)
from ipu_keras.settings.enumerations import StochasticRoundingBehaviour
from ipu_keras.settings.option_warnings import OPTION_WARNINGS

# Only groups of Poplar's options are known here: a misspelt group is refused, and any option of
# a group is taken.
_GROUPS = (
    *("autoReport", "debug", "exchange", "opt", "prng", "profiler", "streamCallbacks", "target"),
)

# The options of convolutions that the cost model reads.
_OF_CONVOLUTIONS = frozenset({"availableMemoryProportion", "partialsType"})

# Those that PopLibs has beside them, in any release; names of experiments begin with that word.
_IDLE_OF_CONVOLUTIONS = frozenset(
    {
        "cycleBackoffPercent",
        "disableTransformations",
        "enableConvDithering",
        "enableFastReduce",
        "enableMultiStageReduce",
        "enableSingleInputReduce",
        "enableTransformsConvTable",
        "gatherConvOutput",
        "insertTransformsCycleCountProgs",
        "interIpuPartialsType",
        "interTilePartialsType",
        "maxOutputMemoryProportion",
        "numIOTiles",
        "partialsType.interIPU",
        "partialsType.interTile",
        "pass",
        "percentageCyclesExcessForMemOptim",
        "planConstraints",
        "planConstraintsOutputFilename",
        "remapOutputTensor",
        "startTileMultiplier",
        "tempMemoryBudget",
        "tilesPerIPU",
        "use128BitConvUnitLoad",
        "useAggressiveRegrouping",
        "useWinograd",
        "weightUpdateMethod",
        "winogradPatchSize",
    }
)

_TOO_SHALLOW = "For pipelining, depth must equal at least the number of pipeline stages"

_ON_SEVERAL_IPUS = (
    "Nodes are put on several IPUs by VirtualGraphMode.Auto, or with VirtualGraphMode.Manual by "
    "`builder.virtualGraph(k)`; stages of a pipeline, with enablePipelining, follow from that, or "
    "are said by `builder.pipelineStage(k)`."
)


@dataclass(frozen=True)
class SessionConfiguration:
    """Options of a session, checked against its graph and device.

    Raises a `popart_exception` if options contradict each other, the graph or the device, and a
    `poplar_exception` for options of an engine or of convolutions that do not exist.

    Args:
        target: Hardware of the device; `None` if nothing is to be modelled.
        device_choices: What programs are compiled for, in terms of TensorFlow's programs.
    """

    options: Any
    graph: OnnxGraph
    num_ipus: int
    target: Target | None
    trains: bool = False
    device_choices: DeviceChoices = field(init=False)

    def __post_init__(self) -> None:
        check_main_loops(self.options)
        check_recomputation(self.options, self.graph)
        if not self.options.enableSupportedDataTypeCasting:
            self._check_types()
        choices = _device_choices(self.options, self.target)
        self._check_convolution_options()
        warn_of_excluded(self.graph.nodes, trains=self.trains)
        object.__setattr__(self, "device_choices", choices)
        if self.placement.has_ipus:
            self._check_annotated()
        if self.options.enablePipelining:
            self._check_pipelining()
            # The property raises if stages are not numbered from 0, or are on several IPUs.
            assert self.pipeline is not None
        if self.trains:
            self._check_training()
        if self.options.replicatedGraphCount > 1 and not self.options.enableReplicatedGraphs:
            raise popart_exception(
                "enableReplicatedGraphs is false, but replicatedGraphCount > 1. Either enable "
                "replicated graphs, or set the count to 1. Received: "
                f"SessionOptions.replicatedGraphCount={self.options.replicatedGraphCount}"
            )
        if self.num_replicas < 1:
            raise popart_exception(
                "SessionOptions.replicatedGraphCount must be at least 1. "
                f"Received: {self.num_replicas}"
            )
        self._check_processes()
        warn_of_locations(self.options, self.num_replicas, trains=self.trains)
        needed = self.num_replicas * self.ipus_per_replica
        if needed > self.num_ipus or self.num_ipus % self.num_replicas:
            raise popart_exception(
                f"{self.num_replicas} replicas (SessionOptions.replicatedGraphCount) of "
                f"{self.ipus_per_replica} IPUs each need a device of {needed} IPUs, or more that "
                f"the replicas divide. Received: a device of {self.num_ipus}"
            )

    @property
    def num_replicas(self) -> int:
        return self.options.replicatedGraphCount if self.options.enableReplicatedGraphs else 1

    @property
    def num_processes(self) -> int:
        """Processes that have as many replicas each."""
        if not self.options.enableDistributedReplicatedGraphs:
            return 1
        return self.options.globalReplicationFactor // self.num_replicas

    def _check_processes(self) -> None:
        options, world = self.options, SYSTEM.world
        if not options.enableDistributedReplicatedGraphs:
            return
        found = options.globalReplicationFactor, options.globalReplicaOffset
        expected = world.size * self.num_replicas, world.rank * self.num_replicas
        if found != expected:
            raise popart_exception(
                f"SessionOptions.globalReplicationFactor and globalReplicaOffset must be "
                f"{expected[0]} and {expected[1]}: process {world.rank} of {world.size} that have "
                f"joined has {self.num_replicas} replica(s). Call popdist.init() first, and "
                "popdist.popart.configureSessionOptions(options), in processes that `poprun` has "
                f"started. Received: {found[0]} and {found[1]}"
            )
        if options.hostAllReduce and world.size > 1:
            raise popart_exception(
                "SessionOptions.hostAllReduce is for the replicas of one process: leave it False, "
                "and gradients are added up over all processes. Received: hostAllReduce=True with "
                "enableDistributedReplicatedGraphs=True"
            )

    @property
    def accumulation(self) -> int:
        """Micro-batches of a batch on one replica."""
        return self.options.accumulationFactor if self.options.enableGradientAccumulation else 1

    @property
    def factors(self) -> Factors:
        """How many gradients are reduced to one, and how."""
        is_mean = self.options.accumulationAndReplicationReductionType == ReductionType.Mean
        return Factors(self.accumulation, self.num_replicas * self.num_processes, is_mean)

    @property
    def has_constant_weights(self) -> bool:
        """Whether weights never change, so that they may be constants of the program."""
        return self.options.constantWeights and not self.trains

    @property
    def has_random_state(self) -> bool:
        return self.options.enableLoadAndOffloadRNGState

    @property
    def counts_cycles(self) -> bool:
        """Whether `getCycleCount` is allowed."""
        return self.options.instrumentWithHardwareCycleCounter

    @property
    def compiles(self) -> bool:
        """Whether programs are compiled to run, and not only modelled."""
        return self.options.compileEngine

    @property
    def caches(self) -> bool:
        """Whether compiled programs are kept for other processes."""
        return self.options.enableEngineCaching and bool(self.options.cachePath)

    @property
    def numerics(self) -> Numerics:
        """How programs compute with halves."""
        at_random = self.options.enableStochasticRounding
        behaviours = StochasticRoundingBehaviour
        return Numerics(
            rounding=behaviours.ON if at_random else behaviours.OFF,
            half_partials=families_in_halves(
                convolution=self.options.convolutionOptions,
                dot={"partialsType": self.options.partialsTypeMatMuls},
            ),
        )

    @property
    def checks_numbers(self) -> bool:
        """Whether a step fails if a number is not finite."""
        engine = current_engine_options(self.options.engineOptions)
        return self.options.enableFloatingPointChecks or engine.stops_at_exceptions

    @property
    def strides_groups(self) -> bool:
        """Whether a group of a normalisation is every n-th channel, and not n adjacent ones."""
        return self.options.groupNormStridedChannelGrouping

    @property
    def stable_softmax(self) -> bool:
        """Whether softmax subtracts the maximum first, so that no exponential overflows."""
        return not self.options.enableNonStableSoftmax

    @property
    def is_synthetic(self) -> bool:
        """Whether data is made up, and nothing is copied between host and device."""
        return self.options.syntheticDataMode != SyntheticDataMode.Off

    @property
    def placement(self) -> Placement:
        """Which of the nodes' annotations count."""
        modes = (VirtualGraphMode.Manual, VirtualGraphMode.Auto)
        has_ipus = self.options.virtualGraphMode in modes
        return Placement(has_ipus, has_ipus and self.options.enablePipelining)

    @property
    def ipus_per_replica(self) -> int:
        if not self.placement.has_ipus:
            return 1
        last = max((node.annotations.get(IPU, 0) for node in _nodes(self.graph)), default=0)
        return last + 1

    @property
    def pipeline(self) -> Pipeline | None:
        """The stages of the graph; `None` if it is not pipelined."""
        if not self.options.enablePipelining:
            return None
        found: dict[int, int] = {}
        for node in _nodes(self.graph):
            stage, ipu = node.annotations[STAGE], node.annotations.get(IPU, 0)
            if found.setdefault(stage, ipu) != ipu:
                raise popart_exception(
                    f"All nodes of a pipeline stage must be on one IPU. Received: stage {stage} on "
                    f"IPU {found[stage]} and, with {node.title}, on IPU {ipu}"
                )
        stages = sorted(found)
        if stages != list(range(len(stages))):
            raise popart_exception(
                "Pipeline stages must be numbered from 0 without gaps. Received: stages "
                f"{', '.join(map(str, stages))}"
            )
        if len(stages) < 2:
            raise popart_exception(
                "A pipeline needs two stages or more: put nodes into them with "
                f"`builder.pipelineStage(k)`. Received: {len(stages)}"
            )
        return Pipeline(
            device_mapping=tuple(found[stage] for stage in stages),
            **pipeline_choices(self.options),
        )

    def check_batches(self, batches_per_step: int) -> None:
        """Refuses steps for inference that never fill their pipeline."""
        if self.trains or self.pipeline is None:
            return
        if batches_per_step < self.pipeline.num_stages:
            raise popart_exception(
                f"{_TOO_SHALLOW} ({self.pipeline.num_stages}). Received: a DataFlow of "
                f"batchesPerStep={batches_per_step}"
            )

    def check_weights_change(self, method: str) -> None:
        """Raises a `popart_exception` for `method` if weights are constant."""
        if self.has_constant_weights:
            raise popart_exception(
                f"Cannot call {method} when SessionOptions.constantWeights is set, as it is by "
                "default. Set constantWeights = False in the options of the session."
            )

    def options_in_words(self) -> dict[str, str]:
        return {name: repr(getattr(self.options, name)) for name in type(self.options).options()}

    def synthetic(self, stream: Stream) -> np.ndarray:
        """Returns made-up data for an input, the same at each step."""
        shape = (stream.num_batches, *stream.shape)
        if self.options.syntheticDataMode == SyntheticDataMode.Zeros:
            return np.zeros(shape, stream.dtype)
        values = np.random.default_rng(0).standard_normal(math.prod(shape))
        return values.reshape(shape).astype(stream.dtype)

    def _check_types(self) -> None:
        given: list[tuple[str, Any]] = [(each.name, each.dtype) for each in self.graph.inputs]
        # Integers of 64 bits are shapes and axes, which are constants that no device has.
        weights = self.graph.initialisers.items()
        given += [(name, array.dtype) for name, array in weights if array.dtype.kind == "f"]
        for name, dtype in given:
            if dtype is not None and dtype_on_device(np.dtype(dtype)) != np.dtype(dtype):
                raise popart_exception(
                    f"The data type {name_of(np.dtype(dtype))} is not supported in Poplar. "
                    f"Received: the tensor {name!r}, with "
                    "SessionOptions.enableSupportedDataTypeCasting=False. Set it to True, which "
                    "narrows 64-bit types, or convert the model with `popart.GraphTransformer`."
                )

    def _check_convolution_options(self) -> None:
        """Refuses options that no convolution has, if there is one: it is what reads them."""
        kinds = {node.kind for node in self.graph.all_nodes()}
        if kinds.isdisjoint(("Conv", "ConvTranspose", "MultiConv")):
            return
        options = self.options.convolutionOptions
        for name in options.keys() - _OF_CONVOLUTIONS - _IDLE_OF_CONVOLUTIONS:
            if not name.startswith("experimental"):
                raise poplar_exception(
                    f"Unrecognised option '{name}'. Received: SessionOptions.convolutionOptions="
                    f"{dict(options)!r}"
                )

    def _check_annotated(self) -> None:
        nodes = list(_nodes(self.graph))
        without = [node for node in nodes if IPU not in node.annotations]
        if without and len(without) < len(nodes):
            raise popart_exception(
                "With VirtualGraphMode.Manual either all nodes or none must be on a virtual graph: "
                "put each within `builder.virtualGraph(k)`, or give its output to "
                f"`builder.virtualGraph(output, k)`. Received: none for {without[0].title} and "
                f"{len(without) - 1} others"
            )

    def _check_pipelining(self) -> None:
        if self.num_ipus < 2 or not self.placement.has_ipus:
            raise popart_exception(
                "Pipelining requires more than 1 IPU, and a virtualGraphMode other than "
                "VirtualGraphMode.Off: VirtualGraphMode.Manual or Auto, as other modes put no "
                f"stages on IPUs. Received: {self.num_ipus} IPUs, {self.options.virtualGraphMode}"
            )
        for node in _nodes(self.graph):
            if STAGE not in node.annotations:
                raise popart_exception(
                    "With enablePipelining each node must be in a pipeline stage: put it within "
                    f"`builder.pipelineStage(k)`. Received: none for {node.title}"
                )
        check_order_of_stages(self.graph)

    def _check_training(self) -> None:
        options = self.options
        if options.accumulationFactor > 1 and not options.enableGradientAccumulation:
            raise popart_exception(
                "enableGradientAccumulation is false, but accumulationFactor > 1. Either enable "
                "gradient accumulation, or set the accumulation factor to 1. Received: "
                f"SessionOptions.accumulationFactor={options.accumulationFactor}"
            )
        reduction = options.accumulationAndReplicationReductionType
        if reduction == ReductionType.NoReduction:
            raise popart_exception(
                "Unsupported reduction type: "
                "SessionOptions.accumulationAndReplicationReductionType must be ReductionType.Sum "
                f"or ReductionType.Mean. Received: {reduction}"
            )
        if options.hostWeightUpdate and not options.hostAllReduce:
            raise popart_exception(
                "Host weight update can't be enabled without enabling hostAllReduce: callbacks "
                "update weights by the gradients that they are given. Set "
                "SessionOptions.hostAllReduce = True too."
            )
        if self.pipeline is not None:
            self._check_depth(self.pipeline.num_stages)

    def _check_depth(self, num_stages: int) -> None:
        if not self.options.enableGradientAccumulation:
            raise popart_exception(
                "Training with enablePipelining needs gradient accumulation: without it, stages "
                "use weights that are some batches old, which is not computed. Set "
                "SessionOptions.enableGradientAccumulation = True and accumulationFactor to "
                f"{num_stages} or more."
            )
        if self.accumulation < num_stages:
            raise popart_exception(
                f"{_TOO_SHALLOW} ({num_stages}). Received: "
                f"SessionOptions.accumulationFactor={self.accumulation}"
            )


def _nodes(graph: OnnxGraph) -> Iterator[Node]:
    """Yields the nodes that run on an IPU."""
    return (node for node in graph.nodes if node.kind not in NOWHERE)


def _device_choices(options: Any, target: Target | None) -> DeviceChoices:
    """Translates options into the configuration of TensorFlow's programs, which the model reads."""
    _check_engine_options(options.engineOptions)
    config = IPUConfig()
    partials = {"partialsType": options.partialsTypeMatMuls} if options.partialsTypeMatMuls else {}
    config.matmuls.poplar_options = partials
    try:
        config.convolutions.poplar_options = dict(options.convolutionOptions)
    except ValueError as error:
        raise poplar_exception(f"SessionOptions.convolutionOptions: {error}") from error
    _warn_of_convolution_options(options.convolutionOptions)
    config.allow_recompute = options.autoRecomputation != RecomputationType.NoRecompute
    config.optimizations.enable_graph_outlining = options.enableOutlining
    if (least := least_bytes_elsewhere(options)) is not None:
        config.optimizations.minimum_remote_tensor_size = least
    config.compilation_poplar_options = dict(options.engineOptions)
    folder = options.cachePath if options.enableEngineCaching else ""
    return DeviceChoices(
        config=config,
        target=target,
        cache_folder=Path(folder) if folder else None,
        is_modelled=target is not None,
        on_several_ipus=_ON_SEVERAL_IPUS,
    )


def _check_engine_options(options: Mapping[str, str]) -> None:
    """Refuses options that no engine has with a `poplar_exception`, and warns of idle ones."""
    for name in options:
        group, _, rest = name.partition(".")
        if group not in _GROUPS or not rest:
            raise poplar_exception(
                f"Unrecognised option '{name}'. Received: SessionOptions.engineOptions="
                f"{dict(options)!r}. Names begin with one of {', '.join(_GROUPS)} and a full stop."
            )
    try:
        EngineOptions.of(options)
    except ValueError as error:
        text = str(error).replace("POPLAR_ENGINE_OPTIONS", "SessionOptions.engineOptions")
        raise poplar_exception(text) from error
    OPTION_WARNINGS.warn(
        "SessionOptions.engineOptions",
        idle_engine_options(options),
        lambda names: (
            f"SessionOptions.engineOptions sets {names}, which the emulator has no use for."
        ),
        stacklevel=2,
    )


def _warn_of_convolution_options(options: Mapping[str, str]) -> None:
    OPTION_WARNINGS.warn(
        "SessionOptions.convolutionOptions",
        sorted(options.keys() - _OF_CONVOLUTIONS),
        lambda names: (
            f"SessionOptions.convolutionOptions sets {names}, which the cost model has no use for. "
            f"It reads {' and '.join(sorted(_OF_CONVOLUTIONS))}."
        ),
        stacklevel=2,
    )

# Written by `python tests/stub_files.py`.
from typing import Any

from ipu_keras.settings.config_tree import ConfigCategory, ConfigTree
from ipu_keras.settings.enumerations import (
    DeviceConnectionType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    StochasticRoundingBehaviour,
)
from ipu_keras.settings.pipeline_choices import SelectionOrder

class SlicesOptions(ConfigCategory):
    poplar_options: dict[str, Any]
    """Flags for every lookup and update of slices, by name.

    Today: No effect: Models plan lookups in one way.
    """

class SchedulingOptions(ConfigCategory):
    algorithm: SchedulingAlgorithm
    """How instructions are ordered, see `SchedulingAlgorithm`.

    Today: No effect: Models have one order: as traced, but for what frees memory.
    """
    maximum_scheduler_lookahead_depth: int
    """Steps that `LOOK_AHEAD` sees ahead; its time grows steeply with it.

    Today: No effect: Models have one order: as traced, but for what frees memory.
    """
    maximum_scheduler_search_space_size: int
    """Candidates that `LOOK_AHEAD` examines at most.

    Today: No effect: Models have one order: as traced, but for what frees memory.
    """

class PoolingOptions(ConfigCategory):
    poplar_options: dict[str, Any]
    """Flags for every pooling operation, by name.

    Today: No effect: Models cost each kind of pooling in one way.
    """

class OptimizationsMathOptions(ConfigCategory):
    fast: bool
    """The name that `enable_fast_math` has in later releases.

    Today: It is the same option.
    """
    dot_strength: bool
    """Let the compiler write small matrix products as products and sums of elements.

    Today: No effect: Models cost the matrix products that a program is traced with.
    """

class OptimizationsOptions(ConfigCategory):
    prefetch_data_streams: bool
    """Fetch the next data on the host while the IPU computes.

    Today: No effect: Batches are always prepared ahead: `prefetch_depth` of a model says
    how many.
    """
    combine_embedding_lookups: bool
    """Merge lookups in the same table. May be faster and take more memory.

    Today: No effect: Models have no such pass.
    """
    combine_matmuls: bool
    """Merge matrix multiplications that share their input or their weights.

    Today: No effect: Models have no such pass.
    """
    enable_graph_outlining: bool
    """Share the code of equal operations. Saves code memory; copying their inputs to a common
    place costs cycles.

    Today: Reports, and whether a program fits, count the code of an outlined function, and
    of equal products, convolutions and normalizations, once, or for each call if this is
    off.
    """
    merge_infeed_io_copies: bool
    """Copy the inputs of a step to the device in one piece. Faster, keeps more memory live.

    Today: No effect: In models, all inputs of an execution are one copy.
    """
    maximum_cross_replica_sum_buffer_size: int
    """Bytes of gradients that may wait so that they are summed over the replicas together; 0
    sums each at once. More needs larger buffers and less code.

    Today: Reports, and whether a program fits, count one all-reduce for all that may wait
    for each other, and their memory at the same time.
    """
    maximum_reduce_scatter_buffer_size: int
    """Bytes that may wait for a common reduce-scatter.

    Today: As that of all-reduces, of what is scattered in operations that a step has.
    """
    maximum_inter_ipu_copies_buffer_size: int
    """Bytes that may wait for a common copy between IPUs.

    Today: No effect: In models, a stage of a pipeline sends all that another one needs at
    once.
    """
    maximum_send_recv_cluster_size: int
    """Bytes that may wait for a common transfer to or from the host.

    Today: No effect: In models, all that an execution takes or returns is one copy.
    """
    minimum_remote_tensor_size: int
    """Bytes from which on a tensor may be kept in remote memory.

    Today: Reports, and whether a program fits, leave smaller variables of a pipeline on its
    IPUs, whatever is offloaded or shared among replicas.
    """
    merge_remote_buffers: MergeRemoteBuffersBehaviour
    """Whether compatible remote buffers become one, see `MergeRemoteBuffersBehaviour`.

    Today: No effect: Models have no code of remote buffers that could be shared.
    """
    enable_gather_simplifier: bool
    """Simplify embedding lookups more thoroughly.

    Today: No effect: Models have no such pass.
    """
    triangular_solve_expander_block_size: int
    """Rows in a block of the triangular solver, each block on one tile; 0 lets the compiler
    choose. Small blocks run in parallel, large ones need less code.

    Today: No effect: Models guess what it costs from its tensors alone.
    """
    cholesky_block_size: int
    """Rows in a block of the Cholesky factorisation, each block on one tile; 0 lets the
    compiler choose. Small blocks run in parallel, large ones need less code.

    Today: No effect: Models guess what it costs from its tensors alone.
    """
    enable_fast_math: bool
    """Rearrange floating-point arithmetic freely, without keeping to IEEE 754.

    Today: Where TensorFlow's executor trains, as it does convolutions, Keras's batch
    normalization is one operation. That is faster, and rounds in another way than stock
    Keras.
    """
    @property
    def math(self) -> OptimizationsMathOptions:
        """What the compiler may do to arithmetic."""

class NormsExperimentalOptions(ConfigCategory):
    distributed_batch_norm_replica_group_size: int
    """Neighbouring replicas whose batch statistics are combined in training. Not for pipelines
    or I/O tiles.

    Today: Takes effect on the numbers, and on reports.
    """

class NormsOptions(ConfigCategory):
    use_stable_statistics: bool
    """Subtract the mean before computing the variance. More precise and slower.

    Today: No effect: The host subtracts the mean first anyway, and models cost the faster
    way.
    """
    @property
    def experimental(self) -> NormsExperimentalOptions:
        """Options that may change without notice."""

class MatmulsOptions(ConfigCategory):
    clear_pass_type: bool
    """Do not tell the planner whether a multiplication belongs to the forward or the backward
    pass. Can save memory in large models.

    Today: No effect: Models plan all passes alike.
    """
    poplar_options: dict[str, Any]
    """Flags for every matrix multiplication, by name. `availableMemoryProportion` is the share
    of a tile's memory that one may use for temporary data, 0.0 to 1.0: less of it usually
    costs cycles. `partialsType` is the type in which products of halves are added up,
    'float' or 'half'.

    Today: Reports, and whether a program fits, take 'availableMemoryProportion' and
    'partialsType' into account, and with 'half' sums of halves are rounded after every 16
    products; other flags have no effect and give a warning.
    """

class IpuModelOptions(ConfigCategory):
    compile_ipu_code: bool
    """Compile for the IPU's instruction set, to model its code size and cycles.

    Today: No effect: No code is compiled for IPUs: models estimate its size and cycles.
    """
    tiles_per_ipu: int
    """Tiles of each modelled IPU; 0 means as many as `version` has.

    Today: With `--use_ipu_model`, reports, and whether a program fits, are for so many
    tiles, unless `--ipu_model_tiles` says how many.
    """
    version: str
    """IPU generation to model: 'ipu1' or 'ipu2'.

    Today: With `--use_ipu_model`, reports, and whether a program fits, are for a GC2 or a
    GC200.
    """

class IoTilesOptions(ConfigCategory):
    num_io_tiles: int
    """Tiles of each IPU that are set apart.

    Today: Reports, and whether a program fits, count with so many tiles less that compute.
    """
    place_ops_on_io_tiles: bool
    """Run input and output operations on these tiles. Needs `num_io_tiles`.

    Today: In reports, the host's copies for steps of one execution pass while the other
    tiles compute. They begin with the first step and end with the last:
    `steps_per_execution` of 1 gains nothing.
    """
    available_memory_proportion: float
    """Share of these tiles' memory that may hold data, 0.0 to 1.0; the rest is for code.
    Operations with more data stay on the other tiles, with a warning.

    Today: Reports leave input and output on the other tiles if it is more, and say so.
    """

class FloatingPointBehaviourOptions(ConfigCategory):
    inv: bool
    """Stop on an invalid operation as IEEE 754 defines it.

    Today: Executions of Keras models, of functions for `strategy.run` and of computations
    of sessions stop with an error that names kind, operation, layer and step, and with the
    variables from before, also if what is not finite is masked later on. What runs eagerly
    does not stop; PopART has `enableFloatingPointChecks`.
    """
    div0: bool
    """Stop on a division by zero.

    Today: Executions of Keras models, of functions for `strategy.run` and of computations
    of sessions stop with an error that names kind, operation, layer and step, and with the
    variables from before, also if what is not finite is masked later on. What runs eagerly
    does not stop; PopART has `enableFloatingPointChecks`.
    """
    oflo: bool
    """Stop on an overflow.

    Today: Executions of Keras models, of functions for `strategy.run` and of computations
    of sessions stop with an error that names kind, operation, layer and step, and with the
    variables from before, also if what is not finite is masked later on. What runs eagerly
    does not stop; PopART has `enableFloatingPointChecks`.
    """
    esr: bool | StochasticRoundingBehaviour
    """Round stochastically to half precision. Takes a `StochasticRoundingBehaviour` too.

    Today: Applied by all programs that run from then on, to all that they compute in half
    precision or cast to it, and by what runs eagerly; sessions that have run computations
    of halves refuse a change. `reset_ipu_seed` starts its random numbers anew. With
    `REPLICA_IDENTICAL_ONLY`, of programs of several replicas only weight updates round at
    random that are the same for all of them.
    """
    nanoo: bool
    """Make a half-precision overflow NaN; otherwise it is the largest number, 65504.

    Today: Applied by all programs that run from then on; sessions that have run
    computations of halves refuse a change. Models whose optimizer scales the loss
    dynamically have NaN in any case, as it looks for that.
    """
    set_all: bool
    """Switch on inv, div0, oflo, esr and nanoo, whatever they are set to.

    Today: Applied when the system is configured; it does nothing of its own.
    """

class ExperimentalMultiReplicaDistributionOptions(ConfigCategory):
    process_index: int
    """Number of this process, below `process_count`.

    Today: Must be the rank of this process among those that have joined.
    """
    process_count: int
    """How many processes take part; 0 leaves each by itself.

    Today: Must be the number of processes that have joined; with more than one,
    collectives, groups and indices of replicas are those of all processes.
    """

class ExperimentalOptions(ConfigCategory):
    always_rearrange_copies_on_the_host: bool
    """Let the host bring streamed data into the device's layout. Spares the device, adds
    latency.

    Today: No effect: Models of host copies have no layouts.
    """
    enable_remote_buffer_embedding: bool
    """Keep host embeddings in remote buffers.

    Today: No effect: Tables of host embeddings are in the host's memory; models cost the
    way there.
    """
    enable_prng_stability: bool
    """Manage the seeds of random numbers so that stochastic rounding lets the weights of
    replicas drift apart less.

    Today: No effect: The host updates weights once for all replicas of a model. Each
    replica of a function or of a session rounds for itself, unless `reset_ipu_seed` has
    them identical.
    """
    @property
    def multi_replica_distribution(self) -> ExperimentalMultiReplicaDistributionOptions:
        """Several processes that run the replicas of one program together; replicas in all are
        those of a process times `process_count`.
        """

class DeviceConnectionOptions(ConfigCategory):
    type: DeviceConnectionType
    """When IPUs are attached, see `DeviceConnectionType`.

    Today: With `PRE_COMPILE`, programs do not run but return zeros, and fill the directory
    of `--executable_cache_path`. With `NEVER`, running one is refused once it is compiled.
    With `ON_DEMAND`, a device has its IPUs, which PopART's devices could have, from its
    first program until it is reset. What runs eagerly is no program, such as initial values
    of variables, and runs with any type.
    """
    version: str
    """IPU generation to compile for: 'ipu1', 'ipu2', or empty for that of the attached
    hardware. Required for the types that never attach, `PRE_COMPILE` and `NEVER`.

    Today: With these types, reports, and whether a program fits, are for a GC2 or a GC200.
    """
    enable_remote_buffers: bool
    """Whether the machine that will run the program has remote buffers. Only asked for if the
    type is not `ALWAYS`: otherwise the hardware knows.

    Today: No effect: In models, every machine has the memory for them.
    """

class ConvolutionsOptions(ConfigCategory):
    poplar_options: dict[str, Any]
    """Flags for every convolution, by name. `availableMemoryProportion` is the share of a
    tile's memory that a convolution may use for temporary data, 0.0 to 1.0: less of it
    usually costs cycles. `partialsType` is the type in which products of halves are added
    up, 'float' or 'half'.

    Today: Reports, and whether a program fits, take 'availableMemoryProportion' and
    'partialsType' into account, and with 'half' sums of halves are rounded after every 16
    products; other flags have no effect and give a warning.
    """

class ConfigOptions(ConfigTree):
    allow_recompute: bool
    """Compute forward activations a second time in the backward pass instead of keeping them.
    Saves memory and costs cycles; operations with state are never repeated.

    Today: Reports, and whether a program fits, count with it. The numbers are the same, so
    the host keeps the activations.
    """
    selection_order: SelectionOrder
    """Which IPU of a device gets which shard or pipeline stage, see `SelectionOrder`.

    Today: In reports, it decides over how many links copies between stages go.
    """
    serialization_output_folder: str
    """Directory that receives the compiled executables; empty writes none.

    Today: Receives a file `<digest>.ipu_executable.json` of each compiled program with what
    it would cost on an IPU: its compute sets in order, their cycles, and where values lie.
    It holds no code. `--executable_cache_path` can name the directory later.
    """
    compilation_poplar_options: dict[str, Any]
    """Flags for the Poplar engine, by name. Those of `POPLAR_ENGINE_OPTIONS` go first.

    Today: What asks for reports (`autoReport.all`, `autoReport.directory`, ...) and
    `debug.allowOutOfMemory` has the effect that it has in the variable, and
    `debug.floatPointOpException` that of `floating_point_behaviour.inv`, `div0` and `oflo`;
    other flags give a warning.
    """
    gcl_poplar_options: dict[str, Any]
    """Flags for collective operations between replicas, by name.

    Today: No effect: Models cost each kind of collective in one way.
    """
    auto_select_ipus: int | list[int] | tuple[int, ...]
    """Number of IPUs of each TensorFlow device `/device:IPU:0`, `/device:IPU:1`, ...; a single
    number makes one device. Excludes `select_ipus`.

    Today: Picks free device configurations of these sizes from the emulated 16-IPU machine.
    If neither selector is set, there is one device with one IPU.
    """
    select_ipus: int | list[int] | tuple[int, ...]
    """Id of the device configuration of each TensorFlow device `/device:IPU:0`,
    `/device:IPU:1`, ...; a single id makes one device. Excludes `auto_select_ipus`.

    Today: Picks these entries of the emulated machine: ids 0 to 15 are single IPUs, 16 to
    23 pairs, 24 to 27 groups of 4, 28 and 29 of 8, and 30 has all 16.
    """
    @property
    def convolutions(self) -> ConvolutionsOptions:
        """Convolutions."""
    @property
    def device_connection(self) -> DeviceConnectionOptions:
        """When and how IPU hardware is attached."""
    @property
    def experimental(self) -> ExperimentalOptions:
        """Options that may change without notice."""
    @property
    def floating_point_behaviour(self) -> FloatingPointBehaviourOptions:
        """Exceptions, overflow and rounding of floating point."""
    @property
    def io_tiles(self) -> IoTilesOptions:
        """Tiles that are set apart for input and output."""
    @property
    def ipu_model(self) -> IpuModelOptions:
        """The IPU Model; only used with `--use_ipu_model` in `TF_POPLAR_FLAGS`."""
    @property
    def matmuls(self) -> MatmulsOptions:
        """Matrix multiplications."""
    @property
    def norms(self) -> NormsOptions:
        """Batch, layer, group and instance normalisation."""
    @property
    def optimizations(self) -> OptimizationsOptions:
        """What the compiler may do to make a program faster or smaller."""
    @property
    def pooling(self) -> PoolingOptions:
        """Pooling operations."""
    @property
    def scheduling(self) -> SchedulingOptions:
        """The order of instructions."""
    @property
    def slices(self) -> SlicesOptions:
        """Lookups, and updates, of rows and slices."""

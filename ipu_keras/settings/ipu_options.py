"""Declares each option of `IPUConfig`, once; `config_tree.py` makes the typed tree of them."""

import math
import os
import typing
from typing import Any

from ipu_keras.settings import idle_reasons as why
from ipu_keras.settings.config_tree import AttributeMetadata, category, option_table
from ipu_keras.settings.engine_options import are_engine_options
from ipu_keras.settings.enumerations import (
    DeviceConnectionType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    StochasticRoundingBehaviour,
)
from ipu_keras.settings.option import Constraint, one_of_texts
from ipu_keras.settings.pipeline_choices import SelectionOrder


def _is_proportion(value: Any) -> bool:
    try:
        return 0 <= float(value) <= 1
    except (TypeError, ValueError):
        return False


def _is_flag_dictionary(value: dict) -> bool:
    return all(
        isinstance(key, str)
        and isinstance(flag, str | int | float)
        and (not isinstance(flag, float) or math.isfinite(flag))
        for key, flag in value.items()
    )


_POSITIVE = Constraint(lambda value: value >= 1, "1 or more")
_PROPORTION = Constraint(_is_proportion, "a proportion from 0.0 to 1.0")
_FLAGS = Constraint(
    _is_flag_dictionary, "a dictionary from flag names to strings, finite numbers or booleans"
)
_PLANNING_FLAGS = Constraint(
    lambda value: (
        _is_flag_dictionary(value)
        and _is_proportion(value.get("availableMemoryProportion", 0))
        and value.get("partialsType", "float") in ("float", "half")
    ),
    f"{_FLAGS.expected}, with 'availableMemoryProportion' from 0.0 to 1.0 and 'partialsType' "
    "'float' or 'half'",
)
_ENGINE_FLAGS = Constraint(
    lambda value: _is_flag_dictionary(value) and are_engine_options(value),
    f"{_FLAGS.expected}, with 'autoReport.directory' the path of a directory, and 'autoReport.all' "
    "and others that the emulator acts on 'true' or 'false'",
)
_PLANNED = (
    "Reports, and whether a program fits, take 'availableMemoryProportion' and 'partialsType' into "
    "account, and with 'half' sums of halves are rounded after every 16 products; other flags have "
    "no effect and give a warning."
)
_STOPS = (
    "Executions of Keras models, of functions for `strategy.run` and of computations of sessions "
    "stop with an error that names kind, operation, layer and step, and with the variables from "
    "before, also if what is not finite is masked later on. What runs eagerly does not stop; "
    "PopART has `enableFloatingPointChecks`."
)
_FOLDER = Constraint(
    lambda value: "\0" not in value and (not os.path.exists(value) or os.path.isdir(value)),
    "the path of a directory, which need not exist yet",
)
_COUNTS = Constraint(
    lambda value: all(count >= 1 for count in as_list(value)),
    "a positive number of IPUs, or one for each device",
)
_CONFIG_IDS = Constraint(
    lambda value: all(config_id >= 0 for config_id in as_list(value)),
    "the id of a device configuration, or one for each device; ids start at 0",
)

# Metadata shows the documented spelling of the type.
_IntOrInts = typing.Union[int, typing.List[int], typing.Tuple[int, ...]]  # noqa: UP006, UP007


def as_list(selector: Any) -> list[int]:
    """Returns the numbers of a selector of IPUs, which may be a single number."""
    return [selector] if isinstance(selector, int) else list(selector)


_option = AttributeMetadata

_ROWS = {
    "allow_recompute": _option(
        False,
        "Compute forward activations a second time in the backward pass instead of keeping them. "
        "Saves memory and costs cycles; operations with state are never repeated.",
        effect="Reports, and whether a program fits, count with it. The numbers are the same, so "
        "the host keeps the activations.",
    ),
    "selection_order": _option(
        SelectionOrder.AUTO,
        "Which IPU of a device gets which shard or pipeline stage, see `SelectionOrder`.",
        effect="In reports, it decides over how many links copies between stages go.",
    ),
    "serialization_output_folder": _option(
        "",
        "Directory that receives the compiled executables; empty writes none.",
        effect="Receives a file `<digest>.ipu_executable.json` of each compiled program with what "
        "it would cost on an IPU: its compute sets in order, their cycles, and where values lie. "
        "It holds no code. `--executable_cache_path` can name the directory later.",
        constraint=_FOLDER,
    ),
    "compilation_poplar_options": _option(
        {},
        "Flags for the Poplar engine, by name. Those of `POPLAR_ENGINE_OPTIONS` go first.",
        effect="What asks for reports (`autoReport.all`, `autoReport.directory`, ...) and "
        "`debug.allowOutOfMemory` has the effect that it has in the variable, and "
        "`debug.floatPointOpException` that of `floating_point_behaviour.inv`, `div0` and `oflo`; "
        "other flags give a warning.",
        constraint=_ENGINE_FLAGS,
    ),
    "gcl_poplar_options": _option(
        {},
        "Flags for collective operations between replicas, by name.",
        constraint=_FLAGS,
        why_idle=why.ONE_COLLECTIVE,
    ),
    "auto_select_ipus": _option(
        [],
        "Number of IPUs of each TensorFlow device `/device:IPU:0`, `/device:IPU:1`, ...; a single "
        "number makes one device. Excludes `select_ipus`.",
        effect="Picks free device configurations of these sizes from the emulated 16-IPU machine. "
        "If neither selector is set, there is one device with one IPU.",
        hint=_IntOrInts,
        constraint=_COUNTS,
    ),
    "select_ipus": _option(
        [],
        "Id of the device configuration of each TensorFlow device `/device:IPU:0`, "
        "`/device:IPU:1`, ...; a single id makes one device. Excludes `auto_select_ipus`.",
        effect="Picks these entries of the emulated machine: ids 0 to 15 are single IPUs, 16 to "
        "23 pairs, 24 to 27 groups of 4, 28 and 29 of 8, and 30 has all 16.",
        hint=_IntOrInts,
        constraint=_CONFIG_IDS,
    ),
    "convolutions": category("Convolutions."),
    "convolutions.poplar_options": _option(
        {},
        "Flags for every convolution, by name. `availableMemoryProportion` is the share of a "
        "tile's memory that a convolution may use for temporary data, 0.0 to 1.0: less of it "
        "usually costs cycles. `partialsType` is the type in which products of halves are added "
        "up, 'float' or 'half'.",
        effect=_PLANNED,
        constraint=_PLANNING_FLAGS,
    ),
    "device_connection": category("When and how IPU hardware is attached."),
    "device_connection.type": _option(
        DeviceConnectionType.ALWAYS,
        "When IPUs are attached, see `DeviceConnectionType`.",
        effect="With `PRE_COMPILE`, programs do not run but return zeros, and fill the directory "
        "of `--executable_cache_path`. With `NEVER`, running one is refused once it is compiled. "
        "With `ON_DEMAND`, a device has its IPUs, which PopART's devices could have, from its "
        "first program until it is reset. What runs eagerly is no program, such as initial values "
        "of variables, and runs with any type.",
    ),
    "device_connection.version": _option(
        "",
        "IPU generation to compile for: 'ipu1', 'ipu2', or empty for that of the attached "
        "hardware. Required for the types that never attach, `PRE_COMPILE` and `NEVER`.",
        effect="With these types, reports, and whether a program fits, are for a GC2 or a GC200.",
        constraint=one_of_texts("", "ipu1", "ipu2"),
    ),
    "device_connection.enable_remote_buffers": _option(
        False,
        "Whether the machine that will run the program has remote buffers. Only asked for if the "
        "type is not `ALWAYS`: otherwise the hardware knows.",
        why_idle="In models, every machine has the memory for them.",
    ),
    "experimental": category("Options that may change without notice."),
    "experimental.always_rearrange_copies_on_the_host": _option(
        False,
        "Let the host bring streamed data into the device's layout. Spares the device, adds "
        "latency.",
        why_idle=why.NO_LAYOUTS,
    ),
    "experimental.enable_remote_buffer_embedding": _option(
        False,
        "Keep host embeddings in remote buffers.",
        why_idle="Tables of host embeddings are in the host's memory; models cost the way there.",
    ),
    "experimental.enable_prng_stability": _option(
        False,
        "Manage the seeds of random numbers so that stochastic rounding lets the weights of "
        "replicas drift apart less.",
        why_idle="The host updates weights once for all replicas of a model. Each replica of a "
        "function or of a session rounds for itself, unless `reset_ipu_seed` has them identical.",
    ),
    "experimental.multi_replica_distribution": category(
        "Several processes that run the replicas of one program together; replicas in all are "
        "those of a process times `process_count`."
    ),
    "experimental.multi_replica_distribution.process_index": _option(
        0,
        "Number of this process, below `process_count`.",
        effect="Must be the rank of this process among those that have joined.",
    ),
    "experimental.multi_replica_distribution.process_count": _option(
        0,
        "How many processes take part; 0 leaves each by itself.",
        effect="Must be the number of processes that have joined; with more than one, collectives, "
        "groups and indices of replicas are those of all processes.",
    ),
    "floating_point_behaviour": category("Exceptions, overflow and rounding of floating point."),
    "floating_point_behaviour.inv": _option(
        False,
        "Stop on an invalid operation as IEEE 754 defines it.",
        effect=_STOPS,
    ),
    "floating_point_behaviour.div0": _option(False, "Stop on a division by zero.", effect=_STOPS),
    "floating_point_behaviour.oflo": _option(False, "Stop on an overflow.", effect=_STOPS),
    "floating_point_behaviour.esr": _option(
        False,
        "Round stochastically to half precision. Takes a `StochasticRoundingBehaviour` too.",
        also_accepts=(StochasticRoundingBehaviour,),
        effect="Applied by all programs that run from then on, to all that they compute "
        "in half precision or cast to it, and by what runs eagerly; sessions that have run "
        "computations of halves refuse a change. `reset_ipu_seed` starts its random numbers anew. "
        "With `REPLICA_IDENTICAL_ONLY`, of programs of several replicas only weight updates "
        "round at random that are the same for all of them.",
    ),
    "floating_point_behaviour.nanoo": _option(
        False,
        "Make a half-precision overflow NaN; otherwise it is the largest number, 65504.",
        effect="Applied by all programs that run from then on; sessions that have run computations "
        "of halves refuse a change. Models whose optimizer scales the loss dynamically have "
        "NaN in any case, as it looks for that.",
    ),
    "floating_point_behaviour.set_all": _option(
        False,
        "Switch on inv, div0, oflo, esr and nanoo, whatever they are set to.",
        effect="Applied when the system is configured; it does nothing of its own.",
    ),
    "io_tiles": category("Tiles that are set apart for input and output."),
    "io_tiles.num_io_tiles": _option(
        0,
        "Tiles of each IPU that are set apart.",
        effect="Reports, and whether a program fits, count with so many tiles less that compute.",
    ),
    "io_tiles.place_ops_on_io_tiles": _option(
        False,
        "Run input and output operations on these tiles. Needs `num_io_tiles`.",
        effect="In reports, the host's copies for steps of one execution pass while the other "
        "tiles compute. They begin with the first step and end with the last: "
        "`steps_per_execution` of 1 gains nothing.",
    ),
    "io_tiles.available_memory_proportion": _option(
        0.9,
        "Share of these tiles' memory that may hold data, 0.0 to 1.0; the rest is for code. "
        "Operations with more data stay on the other tiles, with a warning.",
        effect="Reports leave input and output on the other tiles if it is more, and say so.",
        constraint=_PROPORTION,
    ),
    "ipu_model": category("The IPU Model; only used with `--use_ipu_model` in `TF_POPLAR_FLAGS`."),
    "ipu_model.compile_ipu_code": _option(
        True,
        "Compile for the IPU's instruction set, to model its code size and cycles.",
        why_idle="No code is compiled for IPUs: models estimate its size and cycles.",
    ),
    "ipu_model.tiles_per_ipu": _option(
        0,
        "Tiles of each modelled IPU; 0 means as many as `version` has.",
        effect="With `--use_ipu_model`, reports, and whether a program fits, are for so many "
        "tiles, unless `--ipu_model_tiles` says how many.",
    ),
    "ipu_model.version": _option(
        "ipu2",
        "IPU generation to model: 'ipu1' or 'ipu2'.",
        effect="With `--use_ipu_model`, reports, and whether a program fits, are for a GC2 or a "
        "GC200.",
        constraint=one_of_texts("ipu1", "ipu2"),
    ),
    "matmuls": category("Matrix multiplications."),
    "matmuls.clear_pass_type": _option(
        False,
        "Do not tell the planner whether a multiplication belongs to the forward or the backward "
        "pass. Can save memory in large models.",
        why_idle="Models plan all passes alike.",
    ),
    "matmuls.poplar_options": _option(
        {},
        "Flags for every matrix multiplication, by name. `availableMemoryProportion` is the share "
        "of a tile's memory that one may use for temporary data, 0.0 to 1.0: less of it usually "
        "costs cycles. `partialsType` is the type in which products of halves are added up, "
        "'float' or 'half'.",
        effect=_PLANNED,
        constraint=_PLANNING_FLAGS,
    ),
    "norms": category("Batch, layer, group and instance normalisation."),
    "norms.use_stable_statistics": _option(
        False,
        "Subtract the mean before computing the variance. More precise and slower.",
        why_idle=why.STABLE_NORM,
    ),
    "norms.experimental": category("Options that may change without notice."),
    "norms.experimental.distributed_batch_norm_replica_group_size": _option(
        1,
        "Neighbouring replicas whose batch statistics are combined in training. Not for pipelines "
        "or I/O tiles.",
        effect="Takes effect on the numbers, and on reports.",
        constraint=_POSITIVE,
    ),
    "optimizations": category("What the compiler may do to make a program faster or smaller."),
    "optimizations.prefetch_data_streams": _option(
        True,
        "Fetch the next data on the host while the IPU computes.",
        why_idle="Batches are always prepared ahead: `prefetch_depth` of a model says how many.",
    ),
    "optimizations.combine_embedding_lookups": _option(
        False,
        "Merge lookups in the same table. May be faster and take more memory.",
        why_idle=why.NO_PASS,
    ),
    "optimizations.combine_matmuls": _option(
        False,
        "Merge matrix multiplications that share their input or their weights.",
        why_idle=why.NO_PASS,
    ),
    "optimizations.enable_graph_outlining": _option(
        True,
        "Share the code of equal operations. Saves code memory; copying their inputs to a common "
        "place costs cycles.",
        effect="Reports, and whether a program fits, count the code of an outlined function, and "
        "of equal products, convolutions and normalizations, once, or for each call if this is "
        "off.",
    ),
    "optimizations.merge_infeed_io_copies": _option(
        False,
        "Copy the inputs of a step to the device in one piece. Faster, keeps more memory live.",
        why_idle="In models, all inputs of an execution are one copy.",
    ),
    "optimizations.maximum_cross_replica_sum_buffer_size": _option(
        0,
        "Bytes of gradients that may wait so that they are summed over the replicas together; 0 "
        "sums each at once. More needs larger buffers and less code.",
        effect="Reports, and whether a program fits, count one all-reduce for all that may wait "
        "for each other, and their memory at the same time.",
    ),
    "optimizations.maximum_reduce_scatter_buffer_size": _option(
        0,
        "Bytes that may wait for a common reduce-scatter.",
        effect="As that of all-reduces, of what is scattered in operations that a step has.",
    ),
    "optimizations.maximum_inter_ipu_copies_buffer_size": _option(
        0,
        "Bytes that may wait for a common copy between IPUs.",
        why_idle="In models, a stage of a pipeline sends all that another one needs at once.",
    ),
    "optimizations.maximum_send_recv_cluster_size": _option(
        0,
        "Bytes that may wait for a common transfer to or from the host.",
        why_idle="In models, all that an execution takes or returns is one copy.",
    ),
    "optimizations.minimum_remote_tensor_size": _option(
        128,
        "Bytes from which on a tensor may be kept in remote memory.",
        effect="Reports, and whether a program fits, leave smaller variables of a pipeline on its "
        "IPUs, whatever is offloaded or shared among replicas.",
    ),
    "optimizations.merge_remote_buffers": _option(
        MergeRemoteBuffersBehaviour.IF_BENEFICIAL,
        "Whether compatible remote buffers become one, see `MergeRemoteBuffersBehaviour`.",
        why_idle="Models have no code of remote buffers that could be shared.",
    ),
    "optimizations.enable_gather_simplifier": _option(
        True, "Simplify embedding lookups more thoroughly.", why_idle=why.NO_PASS
    ),
    "optimizations.triangular_solve_expander_block_size": _option(
        0,
        "Rows in a block of the triangular solver, each block on one tile; 0 lets the compiler "
        "choose. Small blocks run in parallel, large ones need less code.",
        why_idle=why.GUESSED_SOLVERS,
    ),
    "optimizations.cholesky_block_size": _option(
        0,
        "Rows in a block of the Cholesky factorisation, each block on one tile; 0 lets the "
        "compiler choose. Small blocks run in parallel, large ones need less code.",
        why_idle=why.GUESSED_SOLVERS,
    ),
    "optimizations.enable_fast_math": _option(
        False,
        "Rearrange floating-point arithmetic freely, without keeping to IEEE 754.",
        effect="Where TensorFlow's executor trains, as it does convolutions, Keras's batch "
        "normalization is one operation. That is faster, and rounds in another way than stock "
        "Keras.",
    ),
    "optimizations.math": category("What the compiler may do to arithmetic."),
    "optimizations.math.fast": _option(
        False,
        "The name that `enable_fast_math` has in later releases.",
        effect="It is the same option.",
        stands_for="optimizations.enable_fast_math",
    ),
    "optimizations.math.dot_strength": _option(
        True,
        "Let the compiler write small matrix products as products and sums of elements.",
        why_idle="Models cost the matrix products that a program is traced with.",
    ),
    "pooling": category("Pooling operations."),
    "pooling.poplar_options": _option(
        {},
        "Flags for every pooling operation, by name.",
        constraint=_FLAGS,
        why_idle="Models cost each kind of pooling in one way.",
    ),
    "scheduling": category("The order of instructions."),
    "scheduling.algorithm": _option(
        SchedulingAlgorithm.CHOOSE_BEST,
        "How instructions are ordered, see `SchedulingAlgorithm`.",
        why_idle=why.ONE_ORDER,
    ),
    "scheduling.maximum_scheduler_lookahead_depth": _option(
        5,
        "Steps that `LOOK_AHEAD` sees ahead; its time grows steeply with it.",
        why_idle=why.ONE_ORDER,
    ),
    "scheduling.maximum_scheduler_search_space_size": _option(
        64, "Candidates that `LOOK_AHEAD` examines at most.", why_idle=why.ONE_ORDER
    ),
    "slices": category("Lookups, and updates, of rows and slices."),
    "slices.poplar_options": _option(
        {},
        "Flags for every lookup and update of slices, by name.",
        constraint=_FLAGS,
        why_idle="Models plan lookups in one way.",
    ),
}

OPTIONS = option_table(_ROWS)

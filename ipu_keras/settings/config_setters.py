"""The functions of the older API that set options of a configuration, as a table.

`setters.py` makes them, and `ipu_keras/utils.py` has them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ipu_keras.settings.arguments import checked_switch, integer_in, noted
from ipu_keras.settings.config_tree import ConfigTree
from ipu_keras.settings.enumerations import (
    DeviceConnectionType,
    ExecutionProfileType,
    MergeRemoteBuffersBehaviour,
)
from ipu_keras.settings.setters import REQUIRED, Argument, Setter
from ipu_keras.settings.verification import VerificationOptions

_NOT_VERIFIED = "transfers are not emulated, so none is verified"
_SAID = f"Has no effect: {_NOT_VERIFIED}, of which it warns."
_ONE_REPORT = "reports have one form: what they show is chosen when they are read"
_MAX_REPORT_SIZE = 268435456
_NO_REPORTS = "without `profiling`, no reports are written"


def _switch(name: str, value: Any, now: Any) -> bool:
    return checked_switch(name, value)


def _opposite(name: str, value: Any, now: Any) -> bool:
    return not checked_switch(name, value)


def _unless_none(name: str, value: Any, now: Any) -> Any:
    return now if value is None else value


def _or_zero(name: str, value: Any, now: Any) -> Any:
    return 0 if value is None else value


def _added(name: str, flags: Any, now: Any) -> dict[str, Any]:
    if flags is not None and not isinstance(flags, Mapping):
        raise TypeError(
            f"`{name}` must be a dictionary from flag names to values, or None. "
            f"Received: {name}={flags!r}"
        )
    return {**(now or {}), **(flags or {})}


def _not_negative(name: str, value: Any, now: Any) -> int:
    number = integer_in(value)
    if number is None or number < 0:
        raise ValueError(f"`{name}` must be an integer of 0 or more. Received: {name}={value!r}")
    return number


def _other_size(name: str, value: Any, now: Any) -> bool:
    return _not_negative(name, value, now) != _MAX_REPORT_SIZE


def _folder(name: str, value: Any, now: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(
            f"`{name}` must be the path of a directory as a text. Received: {name}={value!r}"
        )
    return value


def _executions(name: str, value: Any, now: Any) -> Any:
    """Returns what asks for the profile of executions, or `False`."""
    if not isinstance(value, bool | np.bool_ | ExecutionProfileType | None):
        raise noted(
            TypeError(f"`{name}` must be True, False, or an ExecutionProfileType instance"),
            f"Received: {name}={value!r}",
        )
    return False if value is ExecutionProfileType.NO_PROFILE else value


def _verification(name: str, value: Any, now: Any) -> bool:
    if not isinstance(value, VerificationOptions):
        raise TypeError(f"`{name}` must be of type VerificationOptions. Received: {name}={value!r}")
    return value != VerificationOptions()


def _choose_once(opts: ConfigTree, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuses to choose devices a second time, or one device twice."""
    [(argument, value)] = given.items()
    for name in ("auto_select_ipus", "select_ipus"):
        if (before := getattr(opts, name)) not in ([], ()):
            function = {"num_ipus": "auto_select_ipus", "indices": "select_ipus"}[argument]
            raise noted(
                ValueError("IPU devices have already been configured."),
                "Only one of `auto_select_ipus` and `select_ipus` can be set, and once. "
                f"Received: {function}({argument}={value!r}) with {name}={before!r}. Begin with a "
                "new `create_ipu_config()`.",
            )
    is_list = argument == "indices" and isinstance(value, list | tuple)
    if is_list and len({*map(str, value)}) < len(value):
        raise noted(
            ValueError("All device indices in `indices` must be unique."),
            f"Two devices cannot have the same IPUs. Received: indices={value!r}",
        )
    return {}


def _check_processes(opts: ConfigTree, given: Mapping[str, Any]) -> Mapping[str, Any]:
    count, index = integer_in(given["process_count"]), integer_in(given["process_index"])
    if count is not None and index is not None and not 0 <= index < count:
        raise ValueError(
            "`process_index` must be at least 0 and less than `process_count`. Received: "
            f"process_count={given['process_count']}, process_index={given['process_index']}"
        )
    return {}


def _check_generation(opts: ConfigTree, given: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = given["connection_type"]
    never_attached = (DeviceConnectionType.NEVER, DeviceConnectionType.PRE_COMPILE)
    if any(kind is one for one in never_attached) and given["ipu_version"] == "":
        raise noted(
            ValueError(f"`ipu_version` must be set when `connection_type` is set to `{kind}`"),
            "There is no hardware that could be asked. Give 'ipu1' or 'ipu2'. Received: "
            "ipu_version=''",
        )
    return {}


def _report_flags(opts: ConfigTree, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the engine's flags that arguments about reports ask for."""
    profiles, executions = given["profiling"], given["profile_execution"]
    if given["enable_ipu_events"] and profiles:
        raise noted(
            ValueError("`profiling` and `enable_ipu_events` are mutually exclusive"),
            "Received: profiling=True, enable_ipu_events=True",
        )
    if executions and not profiles:
        raise noted(
            ValueError("`profiling` is required when `profile_execution` is set"),
            f"Received: profiling=False, profile_execution={executions}",
        )
    flags = {"autoReport.all": "true"}
    if executions:
        flags["autoReport.outputExecutionProfile"] = "true"
    if given["report_directory"]:
        flags["autoReport.directory"] = given["report_directory"]
    return {"compilation_poplar_options": flags} if profiles else {}


def _flags(name: str, option: str) -> Argument:
    return Argument(name, option, None, "`None` adds none.", _added)


def _of(path: str, *names: str, **renamed: str) -> tuple[Argument, ...]:
    """Returns arguments that set the options of a category that have their names, or others."""
    options = {**{name: name for name in names}, **renamed}
    return tuple(Argument(name, f"{path}.{option}") for name, option in options.items())


def _idle(
    name: str,
    why: str,
    words: str = "",
    *,
    default: Any = False,
    take: Callable[[str, Any, Any], Any] = _switch,
    unless: str = "",
) -> Argument:
    return Argument(name, "", default, words, take, why, unless)


_PROCESSES = "experimental.multi_replica_distribution"

_OF_CREATION = (
    Argument(
        "profiling",
        default=False,
        take=_switch,
        words="Write a report about each program when it is compiled: the engine's flag "
        "`autoReport.all`. Without it there is `ipu_keras.last_report`, of any program.",
    ),
    _idle("enable_ipu_events", "there are no trace events"),
    _idle(
        "use_poplar_text_report",
        _NO_REPORTS,
        "With `profiling`, the report is there as text in any case.",
        unless="profiling",
    ),
    _idle("use_poplar_cbor_report", "reports are text, JSON and pages"),
    Argument(
        "profile_execution",
        default=None,
        take=_executions,
        words="`True` or an `ExecutionProfileType`, with `profiling`: the engine's flag "
        "`autoReport.outputExecutionProfile`. Reports show executions, all in the same "
        "detail.",
    ),
    _idle(
        "enable_poplar_serialized_graph",
        "there are no graphs of Poplar; `set_serialization_options` has executables written",
        "Has no effect: there are no graphs of Poplar. `set_serialization_options` has "
        "executables written.",
    ),
    _idle(
        "report_every_nth_execution",
        "executions of a program are modelled alike",
        default=0,
        take=_not_negative,
    ),
    _idle(
        "max_report_size",
        "reports are files, of any size",
        default=_MAX_REPORT_SIZE,
        take=_other_size,
    ),
    _idle(
        "report_directory",
        _NO_REPORTS,
        "With `profiling`, where reports are written to: the engine's flag "
        "`autoReport.directory`. Empty for the current directory.",
        default="",
        take=_folder,
        unless="profiling",
    ),
    *_of("scheduling", scheduler_selection="algorithm"),
    *_of("experimental", "always_rearrange_copies_on_the_host"),
    *_of("optimizations", "merge_infeed_io_copies"),
    Argument(
        "disable_graph_outlining",
        "optimizations.enable_graph_outlining",
        default=False,
        words="This argument is the opposite.",
        take=_opposite,
    ),
    _idle(
        "retain_control_dependencies", "the host always keeps to them, and models have one order"
    ),
    *_of(
        "optimizations",
        max_cross_replica_sum_buffer_size="maximum_cross_replica_sum_buffer_size",
        max_inter_ipu_copies_buffer_size="maximum_inter_ipu_copies_buffer_size",
    ),
    *_of(
        "scheduling",
        max_scheduler_lookahead_depth="maximum_scheduler_lookahead_depth",
        max_scheduler_search_space_size="maximum_scheduler_search_space_size",
    ),
    *_of("optimizations", "prefetch_data_streams"),
    Argument("selection_order", "selection_order"),
    *_of(
        "experimental", enable_experimental_remote_buffer_embedding="enable_remote_buffer_embedding"
    ),
)

SETTERS = (
    *(
        Setter(
            f"set_{argument}",
            f"Adds flags of Poplar: `IPUConfig.{option}`.",
            (_flags(argument, option),),
            {argument: {flag: value}},
        )
        for argument, option, flag, value in (
            ("compilation_options", "compilation_poplar_options", "debug.allowOutOfMemory", "true"),
            ("convolution_options", "convolutions.poplar_options", "partialsType", "half"),
            ("gcl_options", "gcl_poplar_options", "useSynclessCollectives", "true"),
            ("pooling_options", "pooling.poplar_options", "poolUseIntrospectiveMapping", "false"),
        )
    ),
    Setter(
        "auto_select_ipus",
        "Sets how many IPUs each TensorFlow device has: `IPUConfig.auto_select_ipus`.",
        (Argument("num_ipus", "auto_select_ipus", REQUIRED),),
        {"num_ipus": [1, 2]},
        _choose_once,
    ),
    Setter(
        "select_ipus",
        "Sets which device configuration each TensorFlow device has: `IPUConfig.select_ipus`.",
        (Argument("indices", "select_ipus", REQUIRED),),
        {"indices": [24, 25]},
        _choose_once,
    ),
    Setter(
        "set_experimental_multi_replica_distribution_options",
        f"Sets which of several processes this is: `IPUConfig.{_PROCESSES}`.",
        (
            Argument("process_count", f"{_PROCESSES}.process_count", REQUIRED),
            Argument("process_index", f"{_PROCESSES}.process_index", REQUIRED),
        ),
        {"process_count": 2, "process_index": 1},
        _check_processes,
    ),
    Setter(
        "set_floating_point_behaviour_options",
        "Sets how floating point behaves: `IPUConfig.floating_point_behaviour`.",
        tuple(
            Argument(name, f"floating_point_behaviour.{name}", True)
            for name in ("inv", "div0", "oflo", "esr", "nanoo")
        ),
        {"div0": False, "esr": False},
    ),
    Setter(
        "set_io_tile_options",
        "Sets tiles of each IPU apart for input and output: `IPUConfig.io_tiles`.",
        (
            Argument("num_io_tiles", "io_tiles.num_io_tiles", REQUIRED),
            Argument(
                "place_ops_on_io_tiles",
                "io_tiles.place_ops_on_io_tiles",
                None,
                "`None` leaves what is set.",
                _unless_none,
            ),
            *_of("io_tiles", io_tile_available_memory_proportion="available_memory_proportion"),
        ),
        {"num_io_tiles": 32, "place_ops_on_io_tiles": True},
    ),
    Setter(
        "set_ipu_connection_type",
        "Sets when IPUs are attached: `IPUConfig.device_connection`.",
        _of(
            "device_connection",
            connection_type="type",
            ipu_version="version",
            enable_remote_buffers="enable_remote_buffers",
        ),
        {"ipu_version": "ipu1"},
        _check_generation,
    ),
    Setter(
        "set_ipu_model_options",
        "Sets options of the IPU Model: `IPUConfig.ipu_model`.",
        (
            *_of("ipu_model", "compile_ipu_code"),
            Argument("tiles_per_ipu", "ipu_model.tiles_per_ipu", None, "`None` is 0.", _or_zero),
            *_of("ipu_model", ipu_model_version="version"),
        ),
        {"tiles_per_ipu": 128},
    ),
    Setter(
        "set_matmul_options",
        "Adds Poplar's flags of matrix multiplications: `IPUConfig.matmuls`.",
        (_flags("matmul_options", "matmuls.poplar_options"), *_of("matmuls", "clear_pass_type")),
        {"matmul_options": {"availableMemoryProportion": "0.5"}},
    ),
    Setter(
        "set_norm_options",
        "Sets options of normalisations: `IPUConfig.norms`.",
        _of(
            "norms",
            "use_stable_statistics",
            experimental_distributed_batch_norm_replica_group_size=(
                "experimental.distributed_batch_norm_replica_group_size"
            ),
        ),
        {"use_stable_statistics": True},
    ),
    Setter(
        "set_optimization_options",
        "Sets what the compiler may do for speed and memory: `IPUConfig.optimizations`.\n\n"
        "All of these options are set, to the defaults where nothing is given.",
        (
            *_of(
                "optimizations",
                "combine_embedding_lookups",
                "combine_matmuls",
                max_cross_replica_sum_buffer_size="maximum_cross_replica_sum_buffer_size",
                max_reduce_scatter_buffer_size="maximum_reduce_scatter_buffer_size",
                max_inter_ipu_copies_buffer_size="maximum_inter_ipu_copies_buffer_size",
                max_send_recv_cluster_size="maximum_send_recv_cluster_size",
                minimum_remote_tensor_size="minimum_remote_tensor_size",
            ),
            Argument(
                "merge_remote_buffers",
                "optimizations.merge_remote_buffers",
                MergeRemoteBuffersBehaviour.NO_MERGING,
            ),
            *_of(
                "optimizations",
                gather_simplifier="enable_gather_simplifier",
                triangular_solve_expander_block_size="triangular_solve_expander_block_size",
                cholesky_block_size="cholesky_block_size",
                enable_fast_math="enable_fast_math",
            ),
        ),
        {"combine_embedding_lookups": True},
    ),
    Setter(
        "set_recomputation_options",
        "Sets whether activations are computed a second time: `IPUConfig.allow_recompute`.",
        (Argument("allow_recompute", "allow_recompute", True),),
        {},
    ),
    Setter(
        "set_report_options",
        "Takes flags of Poplar's reports, which nothing uses.\n\n"
        "Reports here are not made by Poplar: there is one form of them, and what is shown of one "
        "is\nchosen when it is read (`ipu_keras.last_report`).",
        tuple(
            _idle(
                name,
                _ONE_REPORT,
                f"Flags of reports on {of}, by name. Has no effect: there is one form of reports, "
                "of which it warns.",
                default=None,
                take=_added,
            )
            for name, of in (("graph_options", "graphs"), ("execution_options", "executions"))
        ),
        {},
    ),
    Setter(
        "set_serialization_options",
        "Sets where executables are written to: `IPUConfig.serialization_output_folder`.",
        (Argument("output_folder", "serialization_output_folder"),),
        {"output_folder": "my_network"},
    ),
    Setter(
        "set_transfer_options",
        "Takes whether transfers are verified, and has none verified.\n\n"
        "On an IPU it has the hardware check keys of data that arrives. Transfers are not "
        "emulated: data\nis in the host's memory all the time.",
        (_idle("use_verified_transfers", _NOT_VERIFIED, f"Whether they are. {_SAID}"),),
        {},
    ),
    Setter(
        "set_verification_options",
        "Takes keys of verified transfers, which nothing uses.\n\n"
        "Transfers are not emulated, see `set_transfer_options`.",
        (
            _idle(
                "verification_options",
                _NOT_VERIFIED,
                f"Keys and ids. {_SAID}",
                default=REQUIRED,
                take=_verification,
            ),
        ),
        None,
    ),
    Setter(
        "create_ipu_config",
        "Creates a configuration, with some of its options.\n\n"
        "A warning names the arguments that are given and have no effect.",
        _OF_CREATION,
        {"merge_infeed_io_copies": True},
        _report_flags,
        creates=True,
    ),
)

"""Functions of the older API that set a group of options of a configuration at a time.

Each writes to options of the `IPUConfig` that it is given, and returns it. It checks all that it
was given first, so that a call that is refused has changed nothing. `poplar_flag_setters.py` has
those whose options are dictionaries of Poplar's flags.
"""

from typing import Any

from ipu_keras.settings.argument_errors import noted
from ipu_keras.settings.config_arguments import (
    Config,
    check_config,
    warn_of_idle,
    write_arguments,
)
from ipu_keras.settings.counts import integer_in
from ipu_keras.settings.enumerations import DeviceConnectionType, MergeRemoteBuffersBehaviour
from ipu_keras.settings.switches import checked_switch
from ipu_keras.settings.verification import VerificationOptions

_NOT_VERIFIED = "transfers are not emulated, so none is verified"


def auto_select_ipus(opts: Config, num_ipus: Any) -> Config:
    """Sets how many IPUs each TensorFlow device has: `IPUConfig.auto_select_ipus`.

    Args:
        opts: The `IPUConfig` to change.
        num_ipus: The number for each device, in a list; a single number makes one device.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` or `num_ipus` is of another type.
        ValueError: A number is not positive, or devices were chosen before.

    Example:

    >>> auto_select_ipus(create_ipu_config(), num_ipus=[1, 2])
    IPUConfig(auto_select_ipus=[1, 2])
    """
    _check_unselected(opts, f"auto_select_ipus(num_ipus={num_ipus!r})")
    write_arguments(opts, num_ipus=("auto_select_ipus", num_ipus))
    return opts


def select_ipus(opts: Config, indices: Any) -> Config:
    """Sets which device configuration each TensorFlow device has: `IPUConfig.select_ipus`.

    Args:
        opts: The `IPUConfig` to change.
        indices: The id for each device, in a list; a single id makes one device.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` or `indices` is of another type.
        ValueError: An id is negative or there twice, or devices were chosen before.

    Example:

    >>> select_ipus(create_ipu_config(), indices=[24, 25])
    IPUConfig(select_ipus=[24, 25])
    """
    _check_unselected(opts, f"select_ipus(indices={indices!r})")
    if isinstance(indices, list | tuple) and len({*map(str, indices)}) < len(indices):
        raise noted(
            ValueError("All device indices in `indices` must be unique."),
            f"Two devices cannot have the same IPUs. Received: indices={indices!r}",
        )
    write_arguments(opts, indices=("select_ipus", indices))
    return opts


def set_experimental_multi_replica_distribution_options(
    opts: Config, process_count: int, process_index: int
) -> Config:
    """Sets which of several processes this is: `IPUConfig.experimental.multi_replica_distribution`.

    Args:
        opts: The `IPUConfig` to change.
        process_count: How many processes there are.
        process_index: The number of this one, from 0.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or a number is no integer.
        ValueError: There is no process of this number.

    Example:

    >>> set_experimental_multi_replica_distribution_options(create_ipu_config(), 2, 1)
    IPUConfig(experimental.multi_replica_distribution.process_index=1, \
experimental.multi_replica_distribution.process_count=2)
    """
    check_config(opts)
    count, index = integer_in(process_count), integer_in(process_index)
    if count is not None and index is not None and not 0 <= index < count:
        raise ValueError(
            "`process_index` must be at least 0 and less than `process_count`. "
            f"Received: process_count={process_count}, process_index={process_index}"
        )
    path = "experimental.multi_replica_distribution"
    write_arguments(
        opts,
        process_count=(f"{path}.process_count", process_count),
        process_index=(f"{path}.process_index", process_index),
    )
    return opts


def set_floating_point_behaviour_options(
    opts: Config,
    inv: bool = True,
    div0: bool = True,
    oflo: bool = True,
    esr: bool = True,
    nanoo: bool = True,
) -> Config:
    """Sets how floating point behaves: `IPUConfig.floating_point_behaviour`.

    Args:
        opts: The `IPUConfig` to change.
        inv: Stop on an invalid operation, as IEEE 754 defines it.
        div0: Stop on a division by zero.
        oflo: Stop on an overflow.
        esr: Round stochastically to half precision.
        nanoo: Make a half-precision overflow NaN.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or another argument is no truth value.

    Example:

    >>> opts = set_floating_point_behaviour_options(create_ipu_config(), esr=False)
    >>> opts.floating_point_behaviour.inv, opts.floating_point_behaviour.esr
    (True, False)
    """
    check_config(opts)
    path = "floating_point_behaviour"
    write_arguments(
        opts,
        inv=(f"{path}.inv", inv),
        div0=(f"{path}.div0", div0),
        oflo=(f"{path}.oflo", oflo),
        esr=(f"{path}.esr", esr),
        nanoo=(f"{path}.nanoo", nanoo),
    )
    return opts


def set_io_tile_options(
    opts: Config,
    num_io_tiles: int,
    place_ops_on_io_tiles: bool | None = None,
    io_tile_available_memory_proportion: float = 0.9,
) -> Config:
    """Sets tiles of each IPU apart for input and output: `IPUConfig.io_tiles`.

    Args:
        opts: The `IPUConfig` to change.
        num_io_tiles: How many tiles of each IPU.
        place_ops_on_io_tiles: Whether input and output run on them. `None` leaves what is set.
        io_tile_available_memory_proportion: The share of their memory that may hold data.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or another argument is of another type.
        ValueError: A number is out of its range.

    Example:

    >>> set_io_tile_options(create_ipu_config(), 32, place_ops_on_io_tiles=True)
    IPUConfig(io_tiles.num_io_tiles=32, io_tiles.place_ops_on_io_tiles=True)
    """
    check_config(opts)
    place = {"place_ops_on_io_tiles": ("io_tiles.place_ops_on_io_tiles", place_ops_on_io_tiles)}
    write_arguments(
        opts,
        num_io_tiles=("io_tiles.num_io_tiles", num_io_tiles),
        io_tile_available_memory_proportion=(
            "io_tiles.available_memory_proportion",
            io_tile_available_memory_proportion,
        ),
        **({} if place_ops_on_io_tiles is None else place),
    )
    return opts


def set_ipu_connection_type(
    opts: Config,
    connection_type: DeviceConnectionType = DeviceConnectionType.ALWAYS,
    ipu_version: str = "",
    enable_remote_buffers: bool = False,
) -> Config:
    """Sets when IPUs are attached: `IPUConfig.device_connection`.

    Args:
        opts: The `IPUConfig` to change.
        connection_type: When IPUs are attached.
        ipu_version: "ipu1" or "ipu2", the generation to compile for; it is needed by the types
            that never attach.
        enable_remote_buffers: Whether the machine that runs the programs has remote buffers.
            With `DeviceConnectionType.ALWAYS` the hardware knows.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or another argument is of another type.
        ValueError: There is no such generation, or it is needed and was not given.

    Example:

    >>> opts = set_ipu_connection_type(create_ipu_config(), DeviceConnectionType.NEVER, "ipu2")
    >>> opts.device_connection.version
    'ipu2'
    """
    check_config(opts)
    never_attached = (DeviceConnectionType.NEVER, DeviceConnectionType.PRE_COMPILE)
    is_never = any(connection_type is one for one in never_attached)
    if is_never and ipu_version == "":
        raise noted(
            ValueError(
                f"`ipu_version` must be set when `connection_type` is set to `{connection_type}`"
            ),
            "There is no hardware that could be asked. Give 'ipu1' or 'ipu2'. Received: "
            "ipu_version=''",
        )
    write_arguments(
        opts,
        connection_type=("device_connection.type", connection_type),
        ipu_version=("device_connection.version", ipu_version),
        enable_remote_buffers=("device_connection.enable_remote_buffers", enable_remote_buffers),
    )
    return opts


def set_ipu_model_options(
    opts: Config,
    compile_ipu_code: bool = True,
    tiles_per_ipu: int | None = None,
    ipu_model_version: str = "ipu2",
) -> Config:
    """Sets options of the IPU Model: `IPUConfig.ipu_model`.

    Args:
        opts: The `IPUConfig` to change.
        compile_ipu_code: Whether code is compiled, to model its size and cycles.
        tiles_per_ipu: Tiles of each IPU. `None` for as many as the generation has.
        ipu_model_version: "ipu1" or "ipu2", the generation that is modelled.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or another argument is of another type.
        ValueError: There is no such generation, or the number of tiles is negative.

    Example:

    >>> set_ipu_model_options(create_ipu_config(), tiles_per_ipu=128)
    IPUConfig(ipu_model.tiles_per_ipu=128)
    """
    check_config(opts)
    write_arguments(
        opts,
        compile_ipu_code=("ipu_model.compile_ipu_code", compile_ipu_code),
        tiles_per_ipu=("ipu_model.tiles_per_ipu", 0 if tiles_per_ipu is None else tiles_per_ipu),
        ipu_model_version=("ipu_model.version", ipu_model_version),
    )
    return opts


def set_norm_options(
    opts: Config,
    use_stable_statistics: bool = False,
    experimental_distributed_batch_norm_replica_group_size: int = 1,
) -> Config:
    """Sets options of normalisations: `IPUConfig.norms`.

    Args:
        opts: The `IPUConfig` to change.
        use_stable_statistics: Whether the mean is subtracted before the variance is computed.
        experimental_distributed_batch_norm_replica_group_size: Neighbouring replicas whose batch
            statistics are combined in training.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or another argument is of another type.
        ValueError: The size of a group is not positive.

    Example:

    >>> opts = set_norm_options(create_ipu_config(), use_stable_statistics=True)
    >>> opts.norms.use_stable_statistics
    True
    """
    check_config(opts)
    write_arguments(
        opts,
        use_stable_statistics=("norms.use_stable_statistics", use_stable_statistics),
        experimental_distributed_batch_norm_replica_group_size=(
            "norms.experimental.distributed_batch_norm_replica_group_size",
            experimental_distributed_batch_norm_replica_group_size,
        ),
    )
    return opts


def set_optimization_options(
    opts: Config,
    combine_embedding_lookups: bool = False,
    combine_matmuls: bool = False,
    max_cross_replica_sum_buffer_size: int = 0,
    max_reduce_scatter_buffer_size: int = 0,
    max_inter_ipu_copies_buffer_size: int = 0,
    max_send_recv_cluster_size: int = 0,
    minimum_remote_tensor_size: int = 128,
    merge_remote_buffers: MergeRemoteBuffersBehaviour = MergeRemoteBuffersBehaviour.NO_MERGING,
    gather_simplifier: bool = True,
    triangular_solve_expander_block_size: int = 0,
    cholesky_block_size: int = 0,
    enable_fast_math: bool = False,
) -> Config:
    """Sets what the compiler may do for speed and memory: `IPUConfig.optimizations`.

    All of these options are set, to the defaults where nothing is given.

    Args:
        opts: The `IPUConfig` to change.
        combine_embedding_lookups: Merge lookups in the same table.
        combine_matmuls: Merge matrix multiplications that share their input or their weights.
        max_cross_replica_sum_buffer_size: Bytes that may wait for a common sum over replicas.
        max_reduce_scatter_buffer_size: Bytes that may wait for a common reduce-scatter.
        max_inter_ipu_copies_buffer_size: Bytes that may wait for a common copy between IPUs.
        max_send_recv_cluster_size: Bytes that may wait for a common transfer to the host.
        minimum_remote_tensor_size: Bytes from which on a tensor may be in remote memory.
        merge_remote_buffers: Whether compatible remote buffers become one.
        gather_simplifier: Simplify embedding lookups more thoroughly.
        triangular_solve_expander_block_size: Rows in a block of the triangular solver.
        cholesky_block_size: Rows in a block of the Cholesky factorisation.
        enable_fast_math: Rearrange floating-point arithmetic freely.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or another argument is of another type.
        ValueError: A number is negative.

    Example:

    >>> opts = set_optimization_options(create_ipu_config(), combine_embedding_lookups=True)
    >>> opts.optimizations.combine_embedding_lookups
    True
    """
    check_config(opts)
    options = {
        "combine_embedding_lookups": ("combine_embedding_lookups", combine_embedding_lookups),
        "combine_matmuls": ("combine_matmuls", combine_matmuls),
        "max_cross_replica_sum_buffer_size": (
            "maximum_cross_replica_sum_buffer_size",
            max_cross_replica_sum_buffer_size,
        ),
        "max_reduce_scatter_buffer_size": (
            "maximum_reduce_scatter_buffer_size",
            max_reduce_scatter_buffer_size,
        ),
        "max_inter_ipu_copies_buffer_size": (
            "maximum_inter_ipu_copies_buffer_size",
            max_inter_ipu_copies_buffer_size,
        ),
        "max_send_recv_cluster_size": (
            "maximum_send_recv_cluster_size",
            max_send_recv_cluster_size,
        ),
        "minimum_remote_tensor_size": ("minimum_remote_tensor_size", minimum_remote_tensor_size),
        "merge_remote_buffers": ("merge_remote_buffers", merge_remote_buffers),
        "gather_simplifier": ("enable_gather_simplifier", gather_simplifier),
        "triangular_solve_expander_block_size": (
            "triangular_solve_expander_block_size",
            triangular_solve_expander_block_size,
        ),
        "cholesky_block_size": ("cholesky_block_size", cholesky_block_size),
        "enable_fast_math": ("enable_fast_math", enable_fast_math),
    }
    write_arguments(
        opts,
        **{
            argument: (f"optimizations.{option}", value)
            for argument, (option, value) in options.items()
        },
    )
    return opts


def set_recomputation_options(opts: Config, allow_recompute: bool = True) -> Config:
    """Sets whether activations are computed a second time: `IPUConfig.allow_recompute`.

    Args:
        opts: The `IPUConfig` to change.
        allow_recompute: Whether activations are computed again.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or `allow_recompute` no truth value.

    Example:

    >>> set_recomputation_options(create_ipu_config())
    IPUConfig(allow_recompute=True)
    """
    check_config(opts)
    write_arguments(opts, allow_recompute=("allow_recompute", allow_recompute))
    return opts


def set_serialization_options(opts: Config, output_folder: str = "") -> Config:
    """Sets where executables are written to: `IPUConfig.serialization_output_folder`.

    Args:
        opts: The `IPUConfig` to change.
        output_folder: The directory; empty writes none.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or `output_folder` no text.
        ValueError: `output_folder` is the path of something else.

    Example:

    >>> set_serialization_options(create_ipu_config(), output_folder="my_network")
    IPUConfig(serialization_output_folder='my_network')
    """
    check_config(opts)
    write_arguments(opts, output_folder=("serialization_output_folder", output_folder))
    return opts


def set_transfer_options(opts: Config, use_verified_transfers: bool = False) -> Config:
    """Takes whether transfers are verified, and has none verified.

    On an IPU it has the hardware check keys of data that arrives. Transfers are not emulated: data
    is in the host's memory all the time.

    Args:
        opts: The `IPUConfig` to change.
        use_verified_transfers: Whether they are. Has no effect: transfers are not emulated, so none
            is verified, of which it warns.

    Returns:
        `opts`, as it was.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or `use_verified_transfers` no truth value.

    Example:

    >>> set_transfer_options(create_ipu_config())
    IPUConfig()
    """
    check_config(opts)
    asks = checked_switch("use_verified_transfers", use_verified_transfers)
    warn_of_idle(use_verified_transfers=(asks, _NOT_VERIFIED))
    return opts


def set_verification_options(opts: Config, verification_options: VerificationOptions) -> Config:
    """Takes keys of verified transfers, which nothing uses.

    Transfers are not emulated, see `set_transfer_options`.

    Args:
        opts: The `IPUConfig` to change.
        verification_options: Keys and ids. Has no effect: transfers are not emulated, so none is
            verified, of which it warns.

    Returns:
        `opts`, as it was.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or `verification_options` no `VerificationOptions`.

    Example:

    >>> set_verification_options(create_ipu_config(), VerificationOptions())
    IPUConfig()
    """
    check_config(opts)
    if not isinstance(verification_options, VerificationOptions):
        raise TypeError(
            "`verification_options` must be of type VerificationOptions. "
            f"Received: verification_options={verification_options!r}"
        )
    warn_of_idle(
        verification_options=(verification_options != VerificationOptions(), _NOT_VERIFIED)
    )
    return opts


def _check_unselected(opts: Any, received: str) -> None:
    """Refuses to choose devices a second time."""
    check_config(opts)
    for name in ("auto_select_ipus", "select_ipus"):
        if (before := getattr(opts, name)) not in ([], ()):
            raise noted(
                ValueError("IPU devices have already been configured."),
                "Only one of `auto_select_ipus` and `select_ipus` can be set, and once. "
                f"Received: {received} with {name}={before!r}. Begin with a new "
                "`create_ipu_config()`.",
            )

"""What the active `IPUConfig` and `TF_POPLAR_FLAGS` say of programs that are modelled."""

from typing import Any

from ipu_keras.cost.memory_sizes import AVAILABLE_MEMORY_PROPORTION
from ipu_keras.machine.system import SYSTEM
from ipu_keras.machine.target import Target, emulated_target
from ipu_keras.settings.flags import current_flags


def configured_options() -> dict[str, Any]:
    """What `model_of` is told of a program that is compiled for the configured devices.

    Nothing, if none are configured.

    Example:

    >>> from ipu_keras.config import IPUConfig
    >>> config = IPUConfig()
    >>> config.matmuls.poplar_options = {"availableMemoryProportion": "0.2"}
    >>> config.configure_ipu_system()
    >>> configured_options()["matmul_options"]
    {'availableMemoryProportion': '0.2'}
    """
    config = SYSTEM.config
    if config is None:
        return {}
    return {
        "target": configured_target(),
        "recomputation": config.allow_recompute,
        "convolution_options": dict(config.convolutions.poplar_options) or None,
        "matmul_options": dict(config.matmuls.poplar_options) or None,
        "outlining": config.optimizations.enable_graph_outlining,
        "selection_order": config.selection_order,
        "num_io_tiles": config.io_tiles.num_io_tiles,
        "place_ops_on_io_tiles": config.io_tiles.place_ops_on_io_tiles,
        "io_tile_available_memory_proportion": config.io_tiles.available_memory_proportion,
        "minimum_remote_tensor_size": config.optimizations.minimum_remote_tensor_size,
        "maximum_cross_replica_sum_buffer_size": (
            config.optimizations.maximum_cross_replica_sum_buffer_size
        ),
        "maximum_reduce_scatter_buffer_size": (
            config.optimizations.maximum_reduce_scatter_buffer_size
        ),
    }


def memory_proportion() -> float:
    """Of a tile's memory, the most that temporaries of convolutions or products may take."""
    config, name = SYSTEM.config, "availableMemoryProportion"
    chosen = [config.convolutions.poplar_options, config.matmuls.poplar_options]
    return max(float(options.get(name, AVAILABLE_MEMORY_PROPORTION)) for options in chosen)


def computing_target() -> Target:
    """The configured hardware without the tiles that are set apart for input and output.

    Raises:
        ValueError: It has no other tiles.
    """
    return configured_target().without_tiles(SYSTEM.config.io_tiles.num_io_tiles)


def configured_target() -> Target:
    """The hardware that is emulated, by the active configuration and the flags of now."""
    return emulated_target(SYSTEM.config, current_flags())

"""What the active `IPUConfig` and `TF_POPLAR_FLAGS` say about programs that are modelled."""

from typing import Any

from ipu_keras.cost.memory_sizes import AVAILABLE_MEMORY_PROPORTION
from ipu_keras.machine.system import SYSTEM
from ipu_keras.machine.target import Target, emulated_target
from ipu_keras.program import DeviceChoices
from ipu_keras.settings.enumerations import SyntheticDataCategory
from ipu_keras.settings.flags import current_flags


def chosen_options(choices: DeviceChoices | None) -> dict[str, Any]:
    """Returns options for `model_of` of what a program is compiled for.

    Args:
        choices: Choices of its own, as sessions of PopART make them; `None` for the configured
            devices.
    """
    if choices is None:
        return configured_options()
    options = configured_options(choices.config)
    # PopART's programs are told the seed when it is set, not with each run.
    options["copies_seed"] = False
    return options if choices.target is None else {**options, "target": choices.target}


def configured_options(config: Any = None) -> dict[str, Any]:
    """Returns options for `model_of` of a program for the configured devices; none without any.

    Args:
        config: An `IPUConfig` to read in place of the active one.

    Example:

    >>> from ipu_keras.config import IPUConfig
    >>> config = IPUConfig()
    >>> config.matmuls.poplar_options = {"availableMemoryProportion": "0.2"}
    >>> config.configure_ipu_system()
    >>> configured_options()["matmul_options"]
    {'availableMemoryProportion': '0.2'}
    """
    synthetic = _synthetic_data() if config is None else {}
    config = config or SYSTEM.config
    if config is None:
        return {}
    return {
        **synthetic,
        "target": configured_target(config),
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


def _synthetic_data() -> dict[str, bool]:
    """Returns which copies `TF_POPLAR_FLAGS` leaves out, which are nothing to PopART."""
    flags, kinds = current_flags(), SyntheticDataCategory
    found = {
        "synthetic_infeed": flags.asks_for_synthetic(kinds.Infeed),
        "synthetic_outfeed": flags.asks_for_synthetic(kinds.Outfeed),
    }
    return {name: True for name, is_synthetic in found.items() if is_synthetic}


def chosen_config(choices: DeviceChoices | None = None) -> Any:
    """Returns the `IPUConfig` that a program is compiled with; `None` if there is none."""
    return SYSTEM.config if choices is None else choices.config


def memory_proportion(choices: DeviceChoices | None = None) -> float:
    """Returns the share of a tile's memory for temporaries of convolutions and products."""
    config, name = chosen_config(choices), "availableMemoryProportion"
    chosen = [config.convolutions.poplar_options, config.matmuls.poplar_options]
    return max(float(options.get(name, AVAILABLE_MEMORY_PROPORTION)) for options in chosen)


def computing_target(choices: DeviceChoices | None = None) -> Target:
    """Returns the hardware of a program without the tiles set apart for input and output."""
    config = chosen_config(choices)
    target = None if choices is None else choices.target
    return (target or configured_target(config)).without_tiles(config.io_tiles.num_io_tiles)


def configured_target(config: Any = None) -> Target:
    """Returns the hardware that is emulated, by configuration and by the flags as they are now."""
    return emulated_target(config or SYSTEM.config, current_flags())

"""Writes arguments of functions to options of a configuration."""

import functools
import warnings
from typing import Any, TypeVar

import numpy as np

from ipu_keras.settings.config_tree import ConfigTree

Config = TypeVar("Config", bound=ConfigTree)


def check_config(opts: Any) -> None:
    """Raises a `TypeError` for anything but a configuration."""
    if not isinstance(opts, ConfigTree):
        raise TypeError(
            "`opts` must be an IPUConfig, as `create_ipu_config` returns it. "
            f"Received: opts={opts!r} of type {type(opts).__name__}"
        )


def write_arguments(config: ConfigTree, **arguments: tuple[str, Any]) -> None:
    """Writes arguments to the options that they set: all of them, or none if one is refused.

    Numbers of NumPy count as Python's, and integers as floats. Raises a `TypeError` or
    `ValueError` if an option does not take its value.

    Args:
        **arguments: For each argument, by its name, the full name of an option and what was given.

    Example:

    >>> from ipu_keras.config import IPUConfig
    >>> config = IPUConfig()
    >>> write_arguments(config, num_tiles=("io_tiles.num_io_tiles", 8))
    >>> config
    IPUConfig(io_tiles.num_io_tiles=8)
    """
    checked = {
        option: _checked(config, argument, option, value)
        for argument, (option, value) in arguments.items()
    }
    for option, value in checked.items():
        path, _, name = option.rpartition(".")
        setattr(functools.reduce(getattr, filter(None, path.split(".")), config), name, value)


def warn_of_idle(**arguments: tuple[bool, str]) -> None:
    """Warns of arguments without an effect, in the name of a deprecated function's caller.

    Args:
        **arguments: For each argument, by its name, whether it asks for anything, and why it has
            no effect.
    """
    idle = [f"`{name}` ({why})" for name, (asks, why) in arguments.items() if asks]
    if idle:
        # Above this one are the function, and what TensorFlow wraps deprecated ones in.
        warnings.warn(f"These have no effect here: {', '.join(idle)}.", stacklevel=4)


def _checked(config: ConfigTree, argument: str, option: str, value: Any) -> Any:
    metadata = config.get_attribute_metadata(option)
    value = _native(value)
    if metadata.type == "float" and type(value) is int:
        value = float(value)
    try:
        metadata.check_value(value)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"`{argument}` sets `{option}`, which does not take it. "
            f"Received: {argument}={value!r}. {error}"
        ) from None
    return value


def _native(value: Any) -> Any:
    """Returns numbers of NumPy, alone or in a list, as Python's."""
    if isinstance(value, list | tuple):
        return type(value)(map(_native, value))
    return value.item() if isinstance(value, np.generic) else value

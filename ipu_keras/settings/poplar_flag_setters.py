"""Functions of the older API that add flags of Poplar's libraries to a configuration."""

from collections.abc import Mapping
from typing import Any

from ipu_keras.settings.config_arguments import (
    Config,
    check_config,
    warn_of_idle,
    write_arguments,
)

_ONE_REPORT = "reports have one form: what they show is chosen when they are read"


def set_compilation_options(opts: Config, compilation_options: Any = None) -> Config:
    """Adds flags of Poplar's engine: `IPUConfig.compilation_poplar_options`.

    Those of reports and `debug.allowOutOfMemory` act as they do in `POPLAR_ENGINE_OPTIONS`. When
    the system is configured, a warning names the others.

    Args:
        opts: The `IPUConfig` to change.
        compilation_options: Flags by name. `None` adds none.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or `compilation_options` no dictionary.
        ValueError: A flag does not take its value.

    Example:

    >>> set_compilation_options(create_ipu_config(), {"debug.allowOutOfMemory": "true"})
    IPUConfig(compilation_poplar_options={'debug.allowOutOfMemory': 'true'})
    """
    return _with_flags(
        opts, "compilation_options", "compilation_poplar_options", compilation_options
    )


def set_convolution_options(opts: Config, convolution_options: Any = None) -> Config:
    """Adds Poplar's flags of convolutions: `IPUConfig.convolutions.poplar_options`.

    Args:
        opts: The `IPUConfig` to change.
        convolution_options: Flags by name, such as "availableMemoryProportion". `None` adds none.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or `convolution_options` no dictionary.
        ValueError: A flag does not take its value.

    Example:

    >>> set_convolution_options(create_ipu_config(), {"availableMemoryProportion": "0.1"})
    IPUConfig(convolutions.poplar_options={'availableMemoryProportion': '0.1'})
    """
    return _with_flags(
        opts, "convolution_options", "convolutions.poplar_options", convolution_options
    )


def set_gcl_options(opts: Config, gcl_options: Any = None) -> Config:
    """Adds flags of collective operations: `IPUConfig.gcl_poplar_options`.

    Args:
        opts: The `IPUConfig` to change.
        gcl_options: Flags by name. `None` adds none.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or `gcl_options` no dictionary.
        ValueError: A flag does not take its value.

    Example:

    >>> set_gcl_options(create_ipu_config(), {"useSynclessCollectives": "true"})
    IPUConfig(gcl_poplar_options={'useSynclessCollectives': 'true'})
    """
    return _with_flags(opts, "gcl_options", "gcl_poplar_options", gcl_options)


def set_matmul_options(
    opts: Config, matmul_options: Any = None, clear_pass_type: bool = False
) -> Config:
    """Adds Poplar's flags of matrix multiplications: `IPUConfig.matmuls`.

    Args:
        opts: The `IPUConfig` to change.
        matmul_options: Flags by name, such as "availableMemoryProportion". `None` adds none.
        clear_pass_type: Whether the planner is not told which pass a multiplication is in.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or another argument is of another type.
        ValueError: A flag does not take its value.

    Example:

    >>> set_matmul_options(create_ipu_config(), {"availableMemoryProportion": "0.5"})
    IPUConfig(matmuls.poplar_options={'availableMemoryProportion': '0.5'})
    """
    check_config(opts)
    write_arguments(
        opts,
        matmul_options=(
            "matmuls.poplar_options",
            _added(opts, "matmul_options", "matmuls.poplar_options", matmul_options),
        ),
        clear_pass_type=("matmuls.clear_pass_type", clear_pass_type),
    )
    return opts


def set_pooling_options(opts: Config, pooling_options: Any = None) -> Config:
    """Adds Poplar's flags of pooling operations: `IPUConfig.pooling.poplar_options`.

    Args:
        opts: The `IPUConfig` to change.
        pooling_options: Flags by name. `None` adds none.

    Returns:
        `opts`.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or `pooling_options` no dictionary.
        ValueError: A flag does not take its value.

    Example:

    >>> set_pooling_options(create_ipu_config(), {"poolUseIntrospectiveMapping": "false"})
    IPUConfig(pooling.poplar_options={'poolUseIntrospectiveMapping': 'false'})
    """
    return _with_flags(opts, "pooling_options", "pooling.poplar_options", pooling_options)


def set_report_options(
    opts: Config, graph_options: Any = None, execution_options: Any = None
) -> Config:
    """Takes flags of Poplar's reports, which nothing uses.

    Reports here are not made by Poplar: there is one form of them, and what is shown of one is
    chosen when it is read (`ipu_keras.last_report`).

    Args:
        opts: The `IPUConfig` to change.
        graph_options: Flags of reports on graphs, by name. Has no effect: there is one form of
            reports, of which it warns.
        execution_options: Flags of reports on executions, by name. Has no effect: there is one form
            of reports, of which it warns.

    Returns:
        `opts`, as it was.

    Raises:
        TypeError: `opts` is no `IPUConfig`, or another argument no dictionary.

    Example:

    >>> set_report_options(create_ipu_config())
    IPUConfig()
    """
    check_config(opts)
    given = {"graph_options": graph_options, "execution_options": execution_options}
    for argument, flags in given.items():
        _check_flags(argument, flags)
    warn_of_idle(**{argument: (bool(flags), _ONE_REPORT) for argument, flags in given.items()})
    return opts


def _with_flags(opts: Config, argument: str, option: str, flags: Any) -> Config:
    check_config(opts)
    write_arguments(opts, **{argument: (option, _added(opts, argument, option, flags))})
    return opts


def _added(opts: Config, argument: str, option: str, flags: Any) -> dict[str, Any]:
    """Returns the flags that an option has, with those of an argument."""
    _check_flags(argument, flags)
    path, _, name = option.rpartition(".")
    category = getattr(opts, path) if path else opts
    return {**getattr(category, name), **(flags or {})}


def _check_flags(argument: str, flags: Any) -> None:
    if flags is not None and not isinstance(flags, Mapping):
        raise TypeError(
            f"`{argument}` must be a dictionary from flag names to values, or None. "
            f"Received: {argument}={flags!r}"
        )

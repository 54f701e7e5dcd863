"""The configuration of the IPU system: `IPUConfig`, its options and its enumerations.

`settings/ipu_options.py` declares the options, and `machine/system.py` decides which IPUs a
configuration gets.
"""

from typing import TYPE_CHECKING, Any

from ipu_keras.machine.system import SYSTEM, check_cpu_device
from ipu_keras.machine.target import emulated_target
from ipu_keras.ops.argument_checks import check_flag
from ipu_keras.settings.arguments import checked_switch, noted
from ipu_keras.settings.config_tree import AttributeMetadata
from ipu_keras.settings.engine_options import KNOWN_ENGINE_OPTIONS, idle_engine_options
from ipu_keras.settings.enumerations import (
    DeviceConnectionType,
    ExecutionProfileType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    StochasticRoundingBehaviour,
)
from ipu_keras.settings.flags import ENVIRONMENT_VARIABLE, PoplarFlags, current_flags
from ipu_keras.settings.ipu_options import OPTIONS, as_list
from ipu_keras.settings.option import idle_options
from ipu_keras.settings.option_warnings import OPTION_WARNINGS
from ipu_keras.settings.pipeline_choices import SelectionOrder, idle_poplar_options
from ipu_keras.settings.verification import KeyId, VerificationOptions

if TYPE_CHECKING:
    # Written by `python tests/stub_files.py`: a tree that declares the options, for checkers.
    from ipu_keras.settings.config_options import ConfigOptions
else:
    from ipu_keras.settings.config_tree import ConfigTree as ConfigOptions

__all__ = [
    "AttributeMetadata",
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "KeyId",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "StochasticRoundingBehaviour",
    "VerificationOptions",
    "configure_ipu_system",
    "get_ipu_config",
    "reset_ipu_configuration",
]


_NOT_MODELLED = "Models plan products without it."
_NOT_OF_THE_EMULATOR = f"The emulator acts on {', '.join(KNOWN_ENGINE_OPTIONS)}."

_SWITCHED_BY_SET_ALL = ("inv", "div0", "oflo", "esr", "nanoo")


class IPUConfig(ConfigOptions, options=OPTIONS):
    """All options of an IPU system, as a tree of typed attributes.

    Set what you need, then hand the whole to the system with `configure_ipu_system`. Types are
    checked exactly when an attribute is set, values too; conditions between options when the
    system is configured. `docs/ipu_config.md` lists the options and what each does today.

    Raises:
        ValueError: On reading or writing an attribute that does not exist, and
            on writing a value that is not acceptable.
        TypeError: On writing a value of another type.

    Example:

    >>> config = IPUConfig()
    >>> config.auto_select_ipus = [1, 2]
    >>> config
    IPUConfig(auto_select_ipus=[1, 2])
    >>> config.configure_ipu_system()
    >>> len(get_ipu_config())
    2
    """

    __slots__ = ()

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Configures the IPU system with this configuration.

        Args:
            device: The CPU device that the IPUs are attached to.
        """
        _configure(self, device, reset_configuration=True)

    def _complete(self) -> None:
        _check_selectors(self.auto_select_ipus, self.select_ipus)
        connection = self.device_connection
        never_attached = (DeviceConnectionType.PRE_COMPILE, DeviceConnectionType.NEVER)
        if connection.type in never_attached and not connection.version:
            raise ValueError(
                "`device_connection.version` must be 'ipu1' or 'ipu2' if no hardware is attached "
                f"that could be asked. Received: device_connection.version='' with "
                f"device_connection.type={connection.type}."
            )
        processes = self.experimental.multi_replica_distribution
        if processes.process_index >= max(processes.process_count, 1):
            fix = (
                "Processes are numbered from 0."
                if processes.process_count
                else "A process_count of 0 means that there is one process: set it to the number "
                "of all."
            )
            raise ValueError(
                "`experimental.multi_replica_distribution.process_index` must be less than "
                f"`process_count`. Received: process_index={processes.process_index}, "
                f"process_count={processes.process_count}. {fix}"
            )
        self._check_io_tiles()
        if self.floating_point_behaviour.set_all:
            for name in _SWITCHED_BY_SET_ALL:
                setattr(self.floating_point_behaviour, name, True)

    def _check_io_tiles(self) -> None:
        if self.io_tiles.place_ops_on_io_tiles and not self.io_tiles.num_io_tiles:
            raise noted(
                ValueError("Cannot place ops on I/O tiles when num_io_tiles == 0"),
                "Received: io_tiles.place_ops_on_io_tiles=True with io_tiles.num_io_tiles=0. "
                "Set io_tiles.num_io_tiles to the number of tiles.",
            )
        group_size = self.norms.experimental.distributed_batch_norm_replica_group_size
        if self.io_tiles.num_io_tiles and group_size > 1:
            raise ValueError(
                "`norms.experimental.distributed_batch_norm_replica_group_size` must be 1 if there "
                "are I/O tiles, with which distributed batch norm is not supported. Received: "
                f"distributed_batch_norm_replica_group_size={group_size} with io_tiles.num_io_tiles"
                f"={self.io_tiles.num_io_tiles}. Set one of them to its default, 1 or 0."
            )


def configure_ipu_system(
    config: IPUConfig, device: str = "cpu", reset_configuration: bool = True
) -> None:
    """Configures the IPU system: from now on its devices exist in TensorFlow.

    A copy of `config` is taken; changing it later has no effect until the system is configured
    again. If anything is wrong, an existing configuration stays as it is.

    Args:
        config: The `IPUConfig` to use.
        device: The CPU device that the IPUs are attached to.
        reset_configuration: Whether an existing configuration is reset first,
            with a warning. Otherwise it is an error that there is one.

    Raises:
        TypeError: If `config` is not an `IPUConfig`.
        ValueError: If `device` is not a CPU, or options contradict each other.
        tf.errors.FailedPreconditionError: If the machine does not have the requested IPUs, or is
            configured already and may not be reset. It is a `RuntimeError` as long as
            TensorFlow's side is not loaded.

    Example:

    >>> reset_ipu_configuration()
    >>> config = IPUConfig()
    >>> config.auto_select_ipus = 2
    >>> configure_ipu_system(config)
    >>> get_ipu_config()[0].auto_select_ipus
    2
    """
    _configure(config, device, check_flag("reset_configuration", reset_configuration))


def get_ipu_config(session: Any = None) -> list[IPUConfig]:
    """Returns the active configuration, once for each TensorFlow IPU device.

    Args:
        session: Has no effect: the configuration belongs to the process, so it is the same in
            every session.

    Returns:
        A list of `IPUConfig` that cannot be changed; `copy.deepcopy` of one can.

    Raises:
        RuntimeError: If no IPU system is configured.
    """
    SYSTEM.require_configured()
    return [SYSTEM.config] * len(SYSTEM.devices)


def reset_ipu_configuration() -> None:
    """Gives up all IPU devices, once they have finished what they are executing.

    Does nothing if no IPU system is configured. Devices that PopART's `DeviceManager` has acquired
    are left as they are.
    """
    SYSTEM.reset()


def _configure(config: IPUConfig, device: str, reset_configuration: bool) -> None:
    if not isinstance(config, IPUConfig):
        raise TypeError(
            "`config` must be an IPUConfig. Received: "
            f"config={config!r} of type {type(config).__name__}. Create one with IPUConfig() and "
            "set its attributes."
        )
    check_cpu_device(device)
    reset = checked_switch("reset_configuration", reset_configuration)
    active = config.frozen_copy()
    _check_hardware(active, current_flags())
    OPTION_WARNINGS.warn(
        "IPUConfig",
        _idle_options(active),
        lambda names: (
            f"These options are set but have no effect today: {names}. They are stored and "
            "checked; docs/ipu_config.md says what each option does."
        ),
        stacklevel=3,
    )
    SYSTEM.configure(active, reset=reset)


def _check_hardware(config: IPUConfig, flags: PoplarFlags) -> None:
    """Refuses what the IPUs of the configuration, or the IPU Model, do not have."""
    processes = config.experimental.multi_replica_distribution
    if flags.use_ipu_model and processes.process_count:
        raise ValueError(
            "`experimental.multi_replica_distribution.process_count` must be 0 with the IPU Model, "
            "which does not support multi-replica distribution. Received: process_count="
            f"{processes.process_count} with --use_ipu_model in {ENVIRONMENT_VARIABLE}. Set it to "
            "0, or take the flag away."
        )
    joined = SYSTEM.world
    if processes.process_count and (processes.process_count, processes.process_index) != (
        joined.size,
        joined.rank,
    ):
        raise ValueError(
            "`experimental.multi_replica_distribution` must say which of the joined processes this "
            "is. Join them with `horovod.init()` or `popdist.init()` first; a launcher such as "
            f"`mpirun` or `poprun` starts them. Received: process_index={processes.process_index}, "
            f"process_count={processes.process_count} in process {joined.rank} of {joined.size}"
        )
    # Some tiles have to be left that compute.
    emulated_target(config, flags).without_tiles(config.io_tiles.num_io_tiles)


def _idle_options(config: IPUConfig) -> dict[str, str]:
    """Returns why options without an effect have none, for those that differ from the default."""
    # OFF is the other spelling of the default of `esr`.
    off = StochasticRoundingBehaviour.OFF
    values = {name: False if value is off else value for name, value in config._values.items()}
    idle = idle_options({name: config.TABLE[name] for name in values}, values)
    for name in ("convolutions.poplar_options", "matmuls.poplar_options"):
        flags = idle_poplar_options(config._values[name])
        idle |= {f"{flag} in {name}": _NOT_MODELLED for flag in flags}
    name = "compilation_poplar_options"
    flags = idle_engine_options(config._values[name])
    return idle | {f"{flag!r} in {name}": _NOT_OF_THE_EMULATOR for flag in flags}


def _check_selectors(auto_select_ipus: Any, select_ipus: Any) -> None:
    if as_list(auto_select_ipus) and as_list(select_ipus):
        raise noted(
            Exception("Only one of `auto_select_ipus` and `select_ipus` can be set."),
            f"Received: auto_select_ipus={auto_select_ipus!r}, select_ipus={select_ipus!r}. Set "
            "the one that you do not want to [].",
        )

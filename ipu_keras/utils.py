"""Questions about the configured IPU system, and the older home of its configuration."""

from typing import Any

import tensorflow as tf

from ipu_keras._missing_names import missing_attribute
from ipu_keras.config import (
    DeviceConnectionType,
    IPUConfig,
    KeyId,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    configure_ipu_system,
    get_ipu_config,
    reset_ipu_configuration,
)
from ipu_keras.device import device_for
from ipu_keras.machine.system import SYSTEM, check_cpu_device
from ipu_keras.ops.random_keys import seed_keys
from ipu_keras.settings.flags import current_flags

__all__ = [
    "DeviceConnectionType",
    "IPUConfig",
    "KeyId",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "configure_ipu_system",
    "get_ipu_config",
    "get_num_of_ipus_in_device",
    "reset_ipu_configuration",
    "reset_ipu_seed",
    "running_on_ipu_model",
]

# So that importing a documented name from here that is missing says so, as reading it does.
__path__: list[str] = []


def __getattr__(name: str) -> Any:
    raise missing_attribute(__name__, name)


def get_num_of_ipus_in_device(ipu_device: str, device: str = "cpu") -> int:
    """Returns how many IPUs a TensorFlow IPU device holds.

    Args:
        ipu_device: The device, such as `/device:IPU:0`.
        device: The CPU device that the IPUs are attached to.

    Raises:
        RuntimeError: If no IPU system is configured.
        ValueError: If there is no such IPU device, or `device` is not a CPU.

    Example:

    >>> from ipu_keras.config import IPUConfig
    >>> config = IPUConfig()
    >>> config.auto_select_ipus = [1, 4]
    >>> config.configure_ipu_system()
    >>> get_num_of_ipus_in_device("/device:IPU:1")
    4
    """
    check_cpu_device(device)
    return len(SYSTEM.device(ipu_device).ipus)


def reset_ipu_seed(
    seed: int,
    device: str = "/device:IPU:0",
    cpu_device: str = "cpu",
    experimental_identical_replicas: bool = False,
) -> None:
    """Seeds the random operations of programs.

    TensorFlow has one seed for operations without one of their own, on all of its devices, and
    takes it when a function is traced: it holds for programs that are compiled from now on.
    `ipu.rand_ops` starts anew in all programs.
    Keras's layers have seeds of their own, which it leaves alone.

    Args:
        seed: The new seed.
        device: The IPU device whose replicas the last argument is about.
        cpu_device: The CPU device that the IPUs are attached to.
        experimental_identical_replicas: Whether all replicas draw the same numbers. By default each
            draws its own.

    Raises:
        TypeError: `seed` is not an integer.
        RuntimeError: No IPU system is configured.
        ValueError: There is no such IPU device, or `cpu_device` is not a CPU.

    Example:

    >>> from ipu_keras.config import IPUConfig
    >>> reset_ipu_configuration()
    >>> IPUConfig().configure_ipu_system()
    >>> reset_ipu_seed(42)
    """
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise TypeError(f"`seed` must be an integer. Received: seed={seed!r}")
    check_cpu_device(cpu_device)
    configured = device_for(SYSTEM.device(device).ordinal)
    configured.engine.identical_replicas = bool(experimental_identical_replicas)
    configured.engine.num_seedings += 1
    tf.random.set_seed(seed)
    seed_keys(seed)


def running_on_ipu_model() -> bool:
    """Returns whether the IPU Model is used: `TF_POPLAR_FLAGS` has `--use_ipu_model`."""
    return current_flags().use_ipu_model

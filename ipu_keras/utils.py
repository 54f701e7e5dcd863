"""Questions about the configured IPU system, and the older home of its configuration."""

from ipu_keras.config import configure_ipu_system, get_ipu_config, reset_ipu_configuration
from ipu_keras.flags import current_flags
from ipu_keras.system import SYSTEM, check_cpu_device

__all__ = [
    "configure_ipu_system",
    "get_ipu_config",
    "get_num_of_ipus_in_device",
    "reset_ipu_configuration",
    "running_on_ipu_model",
]


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


def running_on_ipu_model() -> bool:
    """Returns whether the IPU Model is used: `TF_POPLAR_FLAGS` has `--use_ipu_model`."""
    return current_flags().use_ipu_model

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
from ipu_keras.device import DRIVER
from ipu_keras.internals.tensorflow.operations import move_operation
from ipu_keras.machine.system import SYSTEM, check_cpu_device
from ipu_keras.ops.argument_checks import check_integer
from ipu_keras.ops.random_keys import seed_keys
from ipu_keras.settings.flags import current_flags
from ipu_keras.settings.switches import checked_switch

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
    "move_variable_initialization_to_cpu",
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

    As long as nothing is configured, there is one device, `/device:IPU:0`, with one IPU.

    Args:
        ipu_device: The device, such as `/device:IPU:0`.
        device: The CPU device that the IPUs are attached to.

    Raises:
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
    return len(SYSTEM.device_or_default(ipu_device, "ipu_device").ipus)


def move_variable_initialization_to_cpu(graph: tf.Graph | None = None) -> None:
    """Computes the initial values of a graph's variables on the CPU.

    What computes them is moved, wherever it was placed; the variables stay where they are, and so
    does what reads other variables.

    Args:
        graph: With the variables, those of its collection `GLOBAL_VARIABLES`. `None` for the
            default graph.

    Raises:
        TypeError: `graph` is not a `tf.Graph`.

    Example:

    >>> with tf.Graph().as_default():
    ...     with tf.device("/device:IPU:0"):
    ...         variable = tf.compat.v1.get_variable("kernel", shape=[4, 4])
    ...     move_variable_initialization_to_cpu()
    ...     variable.device, variable.initializer.inputs[1].device
    ('/device:IPU:0', '/device:CPU:0')
    """
    if graph is None:
        graph = tf.compat.v1.get_default_graph()
    if not isinstance(graph, tf.Graph):
        raise TypeError(
            "`graph` must be a tf.Graph, or None for the default graph. "
            f"Received: graph={graph!r} of type {type(graph).__name__}"
        )
    variables = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    pending = [tensor.op for variable in variables for tensor in variable.initializer.inputs[1:2]]
    moved: set[tf.Operation] = set()
    while pending:
        op = pending.pop()
        # A resource has a place, and what uses it has to be there.
        if op not in moved and not any(tensor.dtype == tf.resource for tensor in op.inputs):
            moved.add(op)
            move_operation(op, "/device:CPU:0")
            pending.extend(tensor.op for tensor in op.inputs)


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
    It may be called before a configuration, which leaves the seed as it is.

    Args:
        seed: The new seed.
        device: The IPU device whose replicas the last argument is about.
        cpu_device: The CPU device that the IPUs are attached to.
        experimental_identical_replicas: Whether all replicas draw the same numbers. By default each
            draws its own.

    Raises:
        TypeError: `seed` is not an integer, or `experimental_identical_replicas` no truth value.
        ValueError: There is no such IPU device, or `cpu_device` is not a CPU.

    Example:

    >>> reset_ipu_seed(42)
    """
    seed = check_integer("seed", seed)
    check_cpu_device(cpu_device, "cpu_device")
    identical = checked_switch("experimental_identical_replicas", experimental_identical_replicas)
    # Which need not be configured yet: it keeps its engine through all configurations.
    engine = DRIVER.known_device(SYSTEM.device_or_default(device).ordinal).engine
    engine.identical_replicas = identical
    engine.num_seedings += 1
    tf.random.set_seed(seed)
    seed_keys(seed)


def running_on_ipu_model() -> bool:
    """Returns whether the IPU Model is used: `TF_POPLAR_FLAGS` has `--use_ipu_model`."""
    return current_flags().use_ipu_model

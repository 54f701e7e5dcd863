"""Questions about the configured IPU system, and the older home of its configuration.

The older functions that set options are made of the table in `settings/config_setters.py`, and
return the `IPUConfig` that they are given, for `configure_ipu_system`.
"""

import concurrent.futures
from pathlib import Path
from typing import Any

import tensorflow as tf

from ipu_keras.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    KeyId,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    VerificationOptions,
    configure_ipu_system,
    get_ipu_config,
    reset_ipu_configuration,
)
from ipu_keras.dataset_benchmark import dataset_of
from ipu_keras.device import DRIVER
from ipu_keras.feeds.exported_tensors import export_dataset, export_graph_inputs
from ipu_keras.functions.seeded_draws import restart_functions
from ipu_keras.internals.tensorflow.decorators import deprecated
from ipu_keras.internals.tensorflow.operations import move_operation
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.machine.system import SYSTEM, check_cpu_device
from ipu_keras.ops.argument_checks import check_integer
from ipu_keras.ops.random_keys import seed_keys
from ipu_keras.profiling.trace_events import (
    IpuTraceEvent,
    extract_all_events,
    extract_all_strings_from_event_trace,
    extract_all_types_from_event_trace,
    extract_compile_reports,
    extract_execute_reports,
    extract_poplar_serialized_graphs,
)
from ipu_keras.runtime.engine import Engine
from ipu_keras.settings.arguments import checked_switch
from ipu_keras.settings.config_setters import SETTERS
from ipu_keras.settings.enumerations import SyntheticDataCategory
from ipu_keras.settings.flags import current_flags
from ipu_keras.settings.setters import function_of
from ipu_keras.settings.synthetic_data import synthetic_array

__all__ = [
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "IpuTraceEvent",
    "KeyId",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "SyntheticDataCategory",
    "VerificationOptions",
    "auto_select_ipus",
    "configure_ipu_system",
    "create_ipu_config",
    "export_dataset_to_file",
    "export_inputs_to_file",
    "extract_all_events",
    "extract_all_strings_from_event_trace",
    "extract_all_types_from_event_trace",
    "extract_compile_reports",
    "extract_execute_reports",
    "extract_poplar_serialized_graphs",
    "get_ipu_config",
    "get_num_of_ipus_in_device",
    "move_variable_initialization_to_cpu",
    "reset_ipu_configuration",
    "reset_ipu_seed",
    "running_on_ipu_model",
    "select_ipus",
    "set_compilation_options",
    "set_convolution_options",
    "set_experimental_multi_replica_distribution_options",
    "set_floating_point_behaviour_options",
    "set_gcl_options",
    "set_io_tile_options",
    "set_ipu_connection_type",
    "set_ipu_model_options",
    "set_matmul_options",
    "set_norm_options",
    "set_optimization_options",
    "set_pooling_options",
    "set_recomputation_options",
    "set_report_options",
    "set_serialization_options",
    "set_transfer_options",
    "set_verification_options",
    "use_synthetic_data_for",
]

# With a path, `from ipu_keras.utils import name` says that a documented name is missing.
__path__: list[str] = []


_deprecated = deprecated("Create an `IPUConfig` and set its attributes.")
_made = {each.name: _deprecated(function_of(each, IPUConfig, __name__)) for each in SETTERS}

auto_select_ipus = _made["auto_select_ipus"]
create_ipu_config = _made["create_ipu_config"]
select_ipus = _made["select_ipus"]
set_compilation_options = _made["set_compilation_options"]
set_convolution_options = _made["set_convolution_options"]
set_experimental_multi_replica_distribution_options = _made[
    "set_experimental_multi_replica_distribution_options"
]
set_floating_point_behaviour_options = _made["set_floating_point_behaviour_options"]
set_gcl_options = _made["set_gcl_options"]
set_io_tile_options = _made["set_io_tile_options"]
set_ipu_connection_type = _made["set_ipu_connection_type"]
set_ipu_model_options = _made["set_ipu_model_options"]
set_matmul_options = _made["set_matmul_options"]
set_norm_options = _made["set_norm_options"]
set_optimization_options = _made["set_optimization_options"]
set_pooling_options = _made["set_pooling_options"]
set_recomputation_options = _made["set_recomputation_options"]
set_report_options = _made["set_report_options"]
set_serialization_options = _made["set_serialization_options"]
set_transfer_options = _made["set_transfer_options"]
set_verification_options = _made["set_verification_options"]


def export_dataset_to_file(
    dataset_or_infeed: Any,
    output_filename: str,
    num_elements: int,
    feed_name: str = "",
    apply_options: bool = True,
) -> None:
    """Writes elements of a dataset to files, stacked: one file for each tensor of an element.

    If an element is one tensor, it is written to `output_filename`. Otherwise the number of each
    tensor is put before the suffix: `my_dataset.0.bin`, `my_dataset.1.bin`. Tensors of
    dicts are in the order of the sorted keys.

    The files are not those of Poplar: each is an archive of NumPy's, whatever its name, which
    `numpy.load` reads. It has one array, with the name of the feed.

    Args:
        dataset_or_infeed: A `tf.data.Dataset`, of which each element has the same shapes, or an
            `IPUInfeedQueue`, whose own place in its dataset stays where it is.
        output_filename: The file's path, in a directory that exists. Existing files are replaced,
            each in one piece.
        num_elements: How many elements are written, from the first.
        feed_name: What the arrays are called. Empty for `feed_name` of the queue, or "feed".
        apply_options: Whether TensorFlow may rearrange the dataset to be read faster.

    Raises:
        TypeError: An argument is of another type, or elements have other than dense tensors of
            numbers.
        ValueError: A shape is not fully defined, or the dataset has fewer elements.
        OSError: A file cannot be written.

    Example:

    >>> import tempfile
    >>> import numpy as np
    >>> dataset = tf.data.Dataset.range(10).map(lambda k: {"a": k, "b": 2 * k})
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     export_dataset_to_file(dataset, f"{directory}/my_dataset.bin", 3, "training")
    ...     np.load(f"{directory}/my_dataset.1.bin")["training"]
    array([0, 2, 4])
    """
    is_queue = isinstance(dataset_or_infeed, IPUInfeedQueue)
    export_dataset(
        dataset_of(dataset_or_infeed) if is_queue else dataset_or_infeed,
        Path(output_filename),
        num_elements,
        feed_name or (dataset_or_infeed._iterator.name if is_queue else "feed"),
        apply_options=checked_switch("apply_options", apply_options),
    )


def export_inputs_to_file(inputs: Any, output_filename: str, feed_dict: Any) -> None:
    """Writes values of inputs of a graph to a file.

    It is an archive of NumPy's, whatever its name, which `numpy.load` reads, and has an array for
    each input, with its name. Variables have the values that they have in the default session; if
    there is none, their initial ones.

    Args:
        inputs: A list of placeholders, variables or other tensors of one graph.
        output_filename: The file's path, in a directory that exists. An existing file is replaced,
            in one piece.
        feed_dict: Values of placeholders, as `Session.run` takes them.

    Raises:
        TypeError: `inputs` are none of a graph, or one has other values than numbers.
        OSError: The file cannot be written.

    Example:

    >>> import tempfile
    >>> import numpy as np
    >>> with tf.Graph().as_default(), tempfile.TemporaryDirectory() as directory:
    ...     x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
    ...     export_inputs_to_file([x], f"{directory}/inputs.bin", {x: [1, 2]})
    ...     np.load(f"{directory}/inputs.bin")["x:0"]
    array([1., 2.], dtype=float32)
    """
    export_graph_inputs(inputs, Path(output_filename), feed_dict)


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

    The operations that compute them are moved, wherever they were placed; the variables stay where
    they are, and so do operations that read other variables.

    Args:
        graph: The graph with the variables, in its collection `GLOBAL_VARIABLES`. `None` for the
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

    TensorFlow's uniform, normal, truncated normal, gamma, Poisson and categorical draws, its
    shuffles, and `ipu.rand_ops`, start anew: in eager code, in models and functions that a strategy
    runs, and in computations that sessions run, also in those that were compiled before. Programs
    of other devices go on as they were.
    TensorFlow takes the seed of other draws, such as `tf.random.uniform_candidate_sampler`, when a
    function is traced, so for these it holds in programs that are compiled from now on, without a
    graph, and in all graphs that have no seed of their own.
    Keras's layers that draw start anew in the programs of the device, and from then on their seeds
    follow from this one, whatever they were made with. Those of which a program draws for the
    first time start from it as well, unless they have drawn before or come from a checkpoint.
    It may be called before a configuration, which leaves the seed as it is.

    Args:
        seed: The new seed, an integer.
        device: The IPU device whose programs are seeded, and whose replicas the last argument is
            about.
        cpu_device: The CPU device that the IPUs are attached to.
        experimental_identical_replicas: Whether all replicas draw the same numbers, and round what
            is the same in them alike. By default each draws its own.

    Raises:
        TypeError: `seed` is not an integer, or `experimental_identical_replicas` no truth value.
        ValueError: There is no such IPU device, or `cpu_device` is not a CPU.

    Example:

    >>> reset_ipu_seed(42)
    """
    seed = check_integer("seed", seed)
    check_cpu_device(cpu_device, "cpu_device")
    identical = checked_switch("experimental_identical_replicas", experimental_identical_replicas)
    # The device need not be configured yet: it keeps its engine through all configurations.
    engine = DRIVER.known_device(SYSTEM.device_or_default(device).ordinal).engine
    engine.identical_replicas = identical
    flags = current_flags()
    if flags.asks_for_synthetic(SyntheticDataCategory.Seed):
        seed = int(synthetic_array(flags, (), "int32"))
    engine.num_seedings += 1
    engine.seed = seed
    engine.rounding_keys.restart(seed, identical_replicas=identical)
    tf.random.set_seed(seed)
    # Within a graph, `set_seed` sets the graph's seed only. Another thread is in no graph.
    with concurrent.futures.ThreadPoolExecutor(1) as outside:
        outside.submit(_seed_without_graph, seed, engine).result()


def _seed_without_graph(seed: int, engine: Engine) -> None:
    tf.random.set_seed(seed)
    if tf.executing_eagerly():
        seed_keys(engine, seed)
        restart_functions(engine)


def running_on_ipu_model() -> bool:
    """Returns whether the IPU Model is used: `TF_POPLAR_FLAGS` has `--use_ipu_model`."""
    return current_flags().use_ipu_model


def use_synthetic_data_for(synthetic_data_category: SyntheticDataCategory) -> bool:
    """Returns whether `TF_POPLAR_FLAGS` asks for synthetic data of a kind.

    `--use_synthetic_data` asks for all of it, `--synthetic_data_categories` for what it names.
    That is for scripts which then need no data of their own: data that they have is used
    nevertheless, as a warning says when the system is configured.

    Args:
        synthetic_data_category: The kind of data.

    Raises:
        TypeError: `synthetic_data_category` is no `SyntheticDataCategory`.

    Example:

    >>> use_synthetic_data_for(SyntheticDataCategory.Infeed)
    False
    """
    if not isinstance(synthetic_data_category, SyntheticDataCategory):
        raise TypeError(
            "`synthetic_data_category` must be a SyntheticDataCategory. "
            f"Received: synthetic_data_category={synthetic_data_category!r}"
        )
    return current_flags().asks_for_synthetic(synthetic_data_category)

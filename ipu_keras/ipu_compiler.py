"""Compiles computations, in graphs of sessions or without."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.device.placement import ordinal_of_placement
from ipu_keras.functions.compiled_computations import call_in_graph
from ipu_keras.functions.loop_bodies import as_list, check_arguments, checked_function
from ipu_keras.functions.seeded_draws import serve_draws
from ipu_keras.functions.sessions import placements_in, serve_sessions
from ipu_keras.hooks.tensorflow.legacy import place_softly
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops import distributed_batch_norm
from ipu_keras.profiling.compilation import compiled


def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
    """Compiles a function as one program of an IPU.

    In a graph of a session it becomes an operation that runs the program; variables that the
    function makes are the graph's. The system may be configured until that runs; without that the
    device has one IPU. Without a session the program runs now.

    Args:
        computation: A function that takes `inputs`, and returns tensors, then operations. All of
            it runs whenever one of its results is computed.
        inputs: A list of structures of tensors, or of what can be made one.

    Returns:
        What `computation` returns: its tensors in a list, or in the structure of lists, tuples and
        dicts in which they are nested. A variable is returned as its value before the computation.
        If there are no tensors, the operation that runs it.

    Raises:
        Exception: Neither the scope here nor one in `computation` places it on an IPU.
        TypeError: `computation` cannot be called with `inputs`.
        ValueError: `computation` returns an operation before a tensor, or in a nested structure.

    Example:

    >>> from ipu_keras import scopes
    >>> with tf.Graph().as_default(), scopes.ipu_scope("/device:IPU:0"):
    ...     x = tf.compat.v1.placeholder(tf.float32, [2])
    ...     (doubled,) = compile(lambda x: x + x, [x])
    ...     with tf.compat.v1.Session() as session:
    ...         session.run(doubled, {x: [1.0, 2.0]}).tolist()
    [2.0, 4.0]
    """
    checked_function("computation", computation)
    given = as_list(inputs)
    check_arguments("computation", computation, given, {})
    ordinal, placement = _current_placement()
    if tf.executing_eagerly():
        if ordinal is None:
            raise _not_on_an_ipu(placement)
        function = tf.function(lambda *tensors: computation(*tensors))
        found = _strategy_of(ordinal).run(function, given)
        return found if isinstance(found, Mapping) else as_list(found)
    return call_in_graph(
        _normalizing_as_configured(computation),
        given,
        DRIVER.known_device(ordinal or 0),
        compile_program=compiled,
        configure=_configure,
        check_placement=functools.partial(_check_placement, ordinal, placement),
    )


def _normalizing_as_configured(computation: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(computation)
    def normalizing(*args: Any) -> Any:
        with distributed_batch_norm.as_configured():
            return computation(*args)

    return normalizing


def _strategy_of(ordinal: int) -> IPUStrategy:
    """Returns a strategy for a device: the one in whose scope this is, as scopes cannot nest."""
    current = tf.distribute.get_strategy()
    device = current.device if isinstance(current, IPUStrategy) else None
    if device is not None and device.ordinal == ordinal:
        return current
    return IPUStrategy(f"/device:IPU:{ordinal}")


def _current_placement() -> tuple[int | None, str]:
    """Returns the IPU device that operations are placed on now, or None, and TensorFlow's name."""
    probe = tf.constant(0) if tf.executing_eagerly() else tf.no_op("ipu_device")
    ordinal = ordinal_of_placement(probe.device)
    strategy = tf.distribute.get_strategy()
    if ordinal is None and isinstance(strategy, IPUStrategy) and strategy.device is not None:
        ordinal = strategy.device.ordinal
    return ordinal, probe.device


def _check_placement(
    ordinal: int | None, placement: str, graph: tf.Graph, has_results: bool
) -> None:
    """Refuses a computation that no scope, around it or in it, has placed on an IPU."""
    if ordinal is not None or not has_results:
        return
    inside = placements_in(graph)
    if not inside:
        raise _not_on_an_ipu(placement)
    if inside != {0}:
        raise Exception(
            "A computation whose own scopes place it on an IPU is one of '/device:IPU:0'. Call "
            "`compile` in the scope of another device. "
            f"Received: the devices {sorted(inside)}"
        )


def _not_on_an_ipu(placement: str) -> Exception:
    return Exception(
        "A computation has been compiled, however it was not placed on an IPU device. This may "
        "cause the program to be run on CPU. Call `compile` in "
        f"`with ipu.scopes.ipu_scope('/device:IPU:0'):`. Received: the device {placement!r}"
    )


def _configure() -> None:
    if not SYSTEM.devices:
        IPUConfig().configure_ipu_system()


def _may_use_ipus(graph: tf.Graph) -> bool:
    """Whether a graph has something on an IPU, or may get it while its session is open.

    Many graphs are built while their session is open, and have nothing, or only the CPU's, so
    far. A graph with other devices than CPUs, but no IPU, is none of these.
    """
    operations = graph.get_operations() if isinstance(graph, tf.Graph) else ()
    devices = {operation.device for operation in operations} - {""}
    return any("IPU:" in name for name in devices) or all("CPU:" in name for name in devices)


place_softly(_may_use_ipus)
serve_sessions(_configure)
serve_draws()

"""How sessions of TensorFlow 1 run operations."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.hooks.installation import install
from ipu_keras.internals.tensorflow.sessions import session_class


_IPU = "/device:IPU:"
_CPU = "/device:CPU:"


def replace_session_runs(
    around: Callable[[Sequence[tf.Operation], Callable[[], Any]], Any],
    concerns: Callable[[tf.Graph], bool],
) -> None:
    """Calls a function around every run of a session.

    TensorFlow has hooks for sessions that are made with them, and none for others, so the method
    in which all runs end is wrapped. Only callables of sessions pass it by: of graphs that concern
    the function they become runs.

    Args:
        around: Takes the operations that are fetched or run, and a function that runs them; it
            returns what that returns.
        concerns: Whether a graph has anything for `around`.
    """

    def running(original: Callable) -> Callable:
        def _do_run(self, handle, target_list, fetch_list, feed_dict, options, run_metadata):
            operations = [*target_list, *(tensor.op for tensor in fetch_list)]
            return around(
                operations,
                lambda: original(
                    self, handle, target_list, fetch_list, feed_dict, options, run_metadata
                ),
            )

        return _do_run

    def calling(original: Callable) -> Callable:
        def make_callable(self, fetches, feed_list=None, accept_options=False):
            if not concerns(self.graph):
                return original(self, fetches, feed_list, accept_options)

            def run(*values, **options):
                return self.run(fetches, dict(zip(feed_list or (), values, strict=True)), **options)

            return run

        return make_callable

    install(session_class(), "_do_run", running)
    install(session_class(), "make_callable", calling)


def place_softly() -> None:
    """Lets sessions run on the host what is placed on IPU devices.

    An IPU device of TensorFlow executes eagerly only. What is placed on one keeps its `device`.
    A session decides when it is made, often before its graph: it places softly unless the graph
    names other devices than IPUs and CPUs, and no IPU.
    """

    def wrapper(original: Callable) -> Callable:
        def __init__(self, target="", graph=None, config=None):
            if config is None or isinstance(config, tf.compat.v1.ConfigProto):
                config = _soft(config, tf.compat.v1.get_default_graph() if graph is None else graph)
            original(self, target=target, graph=graph, config=config)

        return __init__

    install(session_class(), "__init__", wrapper)


def _soft(config: Any, graph: Any) -> Any:
    """A configuration of a session for a graph."""
    if (config is not None and config.allow_soft_placement) or not isinstance(graph, tf.Graph):
        return config
    devices = {op.device for op in graph.get_operations()}
    foreign = any(name and _IPU not in name and _CPU not in name for name in devices)
    if foreign and not any(_IPU in name for name in devices):
        return config
    soft = tf.compat.v1.ConfigProto()
    if config is not None:
        soft.CopyFrom(config)
    soft.allow_soft_placement = True
    return soft

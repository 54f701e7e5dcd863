"""How sessions of TensorFlow 1 run operations."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.hooks.installation import install
from ipu_keras.internals.tensorflow.sessions import session_class


def replace_session_runs(
    around: Callable[[Sequence[tf.Operation], Callable[[], Any]], Any],
) -> None:
    """Calls a function around every run of a session.

    TensorFlow has hooks for sessions that are made with them, and none for others, so the method
    in which all runs end is wrapped.

    Args:
        around: Takes the operations that are fetched or run, and a function that runs them; it
            returns what that returns.
    """

    def wrapper(original: Callable) -> Callable:
        def _do_run(self, handle, target_list, fetch_list, feed_dict, options, run_metadata):
            operations = [*target_list, *(tensor.op for tensor in fetch_list)]
            return around(
                operations,
                lambda: original(
                    self, handle, target_list, fetch_list, feed_dict, options, run_metadata
                ),
            )

        return _do_run

    install(session_class(), "_do_run", wrapper)


def place_softly(wanted: Callable[[tf.Graph], bool]) -> None:
    """Lets sessions run on the host what is placed on devices that they do not know.

    An IPU device of TensorFlow executes eagerly only. What is placed on one keeps its `device`.

    Args:
        wanted: Whether the sessions of a graph should.
    """

    def wrapper(original: Callable) -> Callable:
        def __init__(self, target="", graph=None, config=None):
            given = tf.compat.v1.ConfigProto() if config is None else config
            run = tf.compat.v1.get_default_graph() if graph is None else graph
            # TensorFlow says what is wrong with other types.
            if isinstance(given, tf.compat.v1.ConfigProto) and wanted(run):
                config = tf.compat.v1.ConfigProto()
                config.CopyFrom(given)
                config.allow_soft_placement = True
            original(self, target=target, graph=graph, config=config)

        return __init__

    install(session_class(), "__init__", wrapper)

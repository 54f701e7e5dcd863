"""How sessions of TensorFlow 1 run operations."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.hooks.installation import install
from ipu_keras.internals.tensorflow.sessions import is_closed, session_class


def replace_session_runs(
    around: Callable[[tf.compat.v1.Session, Sequence[tf.Operation], Callable[[dict], Any]], Any],
    concerns: Callable[[tf.Graph], bool],
) -> None:
    """Calls a function around every run of a session.

    TensorFlow has hooks for sessions that are made with them, and none for others, so the method
    in which all runs end is wrapped. Only callables of sessions pass it by: of graphs that concern
    the function they become runs.

    Args:
        around: Takes the session, the operations that are fetched or run, and a function that
            runs them with what it is given to feed besides, by reference of a tensor; returns what
            that function returns.
        concerns: Whether a graph has anything for `around`.
    """

    def running(original: Callable) -> Callable:
        def _do_run(self, handle, target_list, fetch_list, feed_dict, options, run_metadata):
            operations = [*target_list, *(tensor.op for tensor in fetch_list)]

            def run(fed_besides):
                fed = {**feed_dict, **fed_besides}
                try:
                    return original(
                        self, handle, target_list, fetch_list, fed, options, run_metadata
                    )
                except tf.errors.OutOfRangeError as error:
                    if not is_closed(self):
                        raise
                    # Prefetching that was cancelled with the session says that the data ended.
                    raise tf.errors.CancelledError(
                        error.node_def, error.op, "The session was closed while it ran."
                    ) from error

            return around(self, operations, run)

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


def place_softly(wanted: Callable[[tf.Graph], bool]) -> None:
    """Lets sessions run on the host what is placed on devices that they do not know.

    An IPU device of TensorFlow executes eagerly only. What is placed on one keeps its `device`,
    and who asks for this has to check that there is such a device, as TensorFlow no longer does.

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

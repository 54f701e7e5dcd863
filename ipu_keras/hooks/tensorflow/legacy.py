"""Changes TensorFlow 1: how its sessions run operations, and names that it lacks with Keras 3."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf

from ipu_keras.hooks.installation import install
from ipu_keras.internals.tensorflow.sessions import is_closed, session_class


def replace_session_runs(
    around: Callable[[tf.compat.v1.Session, Sequence[tf.Operation], Callable[[dict], Any]], Any],
    concerns: Callable[[tf.Graph], bool],
) -> None:
    """Calls `around` for every run of a session, with what is fetched and what runs it.

    TensorFlow takes hooks only from who makes a session, so the method in which all runs end is
    wrapped. Callables of sessions alone do not pass through it: in graphs that concern the
    function, they become runs.

    Args:
        around: Takes the session, the operations that are fetched or run, and a function that runs
            them. That function takes what is fed besides what the user feeds, by reference.
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
                    # Closing a session cancels prefetching, which then reports the end of the
                    # data. Told as it is, a loop over the data would end as if it had seen all
                    # of it.
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
    """Lets sessions of the graphs that `wanted` names run on the host what is placed on IPUs.

    TensorFlow executes on the device of an IPU eagerly only. An operation keeps its `device`.
    Whoever asks for this has to check that such a device exists, as TensorFlow no longer does.
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


def give_legacy_names(layers: ModuleType, cells: ModuleType) -> None:
    """Sets `tf.compat.v1.layers` and `tf.compat.v1.nn.rnn_cell` for the rest of the process.

    With Keras 3 both are lazy modules that fail when they are used. Only a process that runs a
    script of TensorFlow 1 gets here, so nothing undoes it, and it is in no table of hooks.
    """
    tf.compat.v1.layers = layers
    tf.compat.v1.nn.rnn_cell = cells

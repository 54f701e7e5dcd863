"""The graph of a session that a queue belongs to."""

from typing import Any

import tensorflow as tf


class SessionGraph:
    """The graph of a TensorFlow 1 session in which a queue was made, if there was one.

    A session runs one graph, which knows nothing of others, so a queue is of use there only.

    Args:
        name: What errors call the queue.
    """

    def __init__(self, name: str):
        self._name = name
        self._graph = _current()

    @property
    def is_there(self) -> bool:
        """Whether the queue was made in the graph of a session."""
        return self._graph is not None

    @property
    def is_current(self) -> bool:
        """Whether the queue can be used in the present graph."""
        return _current() is self._graph

    def check(self) -> None:
        """Raises a `ValueError` unless the queue is used in the graph in which it was made."""
        current = _current()
        if current is not self._graph:
            where = {True: "eagerly", False: "in a graph"}
            raise ValueError(
                "A queue can be used only in the graph in which it was made, as a session runs one "
                "graph. Make another queue, or make both within the same "
                f"`with tf.Graph().as_default():`. Received: {self._name!r}, which was made "
                f"{where[self._graph is None]}, and is used {where[current is None]}"
                f"{'' if current is None or self._graph is None else ' that is another one'}"
            )


def _current() -> Any:
    # Within a `tf.function`, the graph around it counts.
    with tf.init_scope():
        return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()

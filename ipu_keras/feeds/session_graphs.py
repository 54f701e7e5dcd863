"""The graph of a session that a queue is a part of."""

from typing import Any

import tensorflow as tf


class SessionGraph:
    """The graph of a session in which a queue was made; none, if there was no session's graph.

    What a session runs is in one graph, and knows nothing of others.

    Args:
        name: What errors call the queue.
    """

    def __init__(self, name: str):
        self._name = name
        self._graph = _current()

    @property
    def is_there(self) -> bool:
        """Whether it was made in the graph of a session."""
        return self._graph is not None

    @property
    def is_current(self) -> bool:
        """Whether the queue can be used where this is asked."""
        return _current() is self._graph

    def check(self) -> None:
        """Checks that the queue is used where it was made.

        Raises:
            ValueError: It is used in another graph.
        """
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
    with tf.init_scope():
        return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()

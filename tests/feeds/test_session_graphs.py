"""Queues know the graph that they are a part of."""

import pytest
import tensorflow as tf

from ipu_keras.feeds.session_graphs import SessionGraph

TEXT = "only in the graph in which it was made.*Received: 'queue', which was made"


def test_of_a_graph():
    with tf.Graph().as_default() as graph:
        made = SessionGraph("queue")
        assert made.is_there
        made.check()
        # Functions are parts of the graph around them.
        tf.function(made.check).get_concrete_function()
    with tf.Graph().as_default(), pytest.raises(ValueError, match=f"{TEXT} in a graph.*another"):
        made.check()
    with pytest.raises(ValueError, match=f"{TEXT} in a graph, and is used eagerly"):
        made.check()
    with graph.as_default():
        made.check()


def test_of_no_graph():
    made = SessionGraph("queue")
    assert not made.is_there
    made.check()
    tf.function(made.check).get_concrete_function()
    with (
        tf.Graph().as_default(),
        pytest.raises(ValueError, match=f"{TEXT} eagerly, and is used in"),
    ):
        made.check()

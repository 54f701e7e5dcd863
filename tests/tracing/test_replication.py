"""What the trace of one replica says about all of them."""

import doctest

import pytest
import tensorflow as tf
from replicas import trace

from ipu_keras.ops.all_to_all_op import all_gather, all_to_all
from ipu_keras.ops.cross_replica_ops import assume_equal_across_replicas, cross_replica_sum
from ipu_keras.ops.reduce_scatter_op import reduce_scatter
from ipu_keras.tracing import replication
from ipu_keras.tracing.hlo import hlo_graph
from ipu_keras.tracing.replication import (
    Collective,
    ReplicaGroups,
    collective_of,
    current_replicas,
    ipus_of_shards,
    note_shards,
    num_shards_of,
    num_shards_so_far,
    replicated,
)

X = tf.TensorSpec((4, 2))
# The attribute of operations whose result is promised to be equal in all replicas.
MARK = "_ipu_equal_across_replicas"


def hlo_of(function, num_replicas, spec=X):
    """The only collective in what XLA makes of a function."""
    graph = hlo_graph(trace(function, num_replicas, spec))
    (op,) = [op for op in graph.ops if "num_replicas" in op.attributes]
    return op


def test_the_number_of_replicas_is_that_of_the_innermost_context():
    assert current_replicas() == 1
    with replicated(2):
        with replicated(4):
            assert current_replicas() == 4
        assert current_replicas() == 2
    with pytest.raises(KeyError), replicated(2):
        raise KeyError
    assert current_replicas() == 1


@pytest.mark.parametrize("num_replicas", [0, -1, 2.0, "2", None])
def test_what_is_no_number_of_replicas(num_replicas):
    with pytest.raises(ValueError, match="Received: num_replicas="), replicated(num_replicas):
        pass


def test_a_marker_says_what_it_stands_for():
    expected = Collective("all-to-all", ReplicaGroups(4, 4), dimensions=(0, 1))
    assert Collective.from_json(expected.to_json()) == expected
    traced = trace(lambda x: all_to_all(x, 0, 1, 4), 4, X)
    found = [collective_of(op) for op in traced.graph.get_operations()]
    assert [each for each in found if each] == [expected]


def test_a_marker_does_not_run_by_accident():
    traced = trace(cross_replica_sum, 2, X)
    with pytest.raises(tf.errors.InvalidArgumentError, match="XlaCustomCall"):
        traced(tf.zeros((4, 2)))


@pytest.mark.parametrize(
    ("function", "kind", "attributes"),
    [
        (
            lambda x: cross_replica_sum(x, 2),
            "all-reduce",
            {"num_replicas": 2, "operation": "add", "dimensions": ()},
        ),
        (lambda x: all_gather(x, 4), "all-gather", {"num_replicas": 4, "dimensions": (0,)}),
        (lambda x: all_to_all(x, 0, 1, 4), "all-to-all", {"num_replicas": 4, "dimensions": (0, 1)}),
        (
            lambda x: reduce_scatter(tf.reshape(x, [8]), 4, "COLLECTIVE_OP_MAX"),
            "reduce-scatter",
            {"num_replicas": 4, "operation": "maximum", "dimensions": (0,)},
        ),
    ],
)
def test_the_cost_model_sees_the_collective(function, kind, attributes):
    op = hlo_of(function, 4)
    assert op.kind == kind
    assert dict(op.attributes) == attributes


def test_the_collective_of_a_gradient_has_its_place():
    def gradient(x):
        with tf.GradientTape() as tape, tf.name_scope("dense"):
            tape.watch(x)
            y = cross_replica_sum(x, name="total") * 2.0
        return tape.gradient(y, x)

    assert hlo_of(gradient, 2).name.endswith("all_reduce/all-reduce")


def test_promised_tensors_are_marked():
    traced = trace(lambda x: assume_equal_across_replicas(x), 2, X)
    assert [MARK in op.node_def.attr for op in traced.graph.get_operations()].count(True) == 1


def test_examples():
    assert doctest.testmod(replication).failed == 0


# Shards of replicas.


def shards_within(shards, num_shards, *, known_before=False):
    """How many replicas of four there are in a trace with shards."""
    with tf.Graph().as_default() as graph, replicated(4, shards=shards):
        if known_before:
            current_replicas()
        note_shards(graph, num_shards)
        return current_replicas(), num_shards_of(graph)


@pytest.mark.parametrize("shards", ["counted", "shared", "refused"])
def test_one_shard_changes_nothing(shards):
    assert shards_within(shards, 1, known_before=True) == (4, 1)


def test_replicas_share_their_ipus_among_shards():
    assert shards_within("shared", 2) == (2, 2)
    assert shards_within("shared", 3) == (1, 3)
    assert shards_within("shared", 9) == (1, 9)  # which the device has no IPUs for
    assert shards_within("counted", 3, known_before=True) == (4, 3)


def test_shards_that_are_refused():
    with pytest.raises(ValueError, match=r"Keras model.*Received: `ipu_shard\(2\)`"):
        shards_within("refused", 3)
    with pytest.raises(ValueError, match=r"enter `ipu_shard\(2\)` before.* for 4 replicas"):
        shards_within("shared", 3, known_before=True)


def test_shards_of_functions_that_a_function_calls():
    def inner(x):
        note_shards(tf.compat.v1.get_default_graph(), 3)
        return x + x

    def outer(x):
        note_shards(tf.compat.v1.get_default_graph(), 2)
        found.append(num_shards_so_far())
        y = tf.function(inner)(x)
        found.append(num_shards_so_far())
        return y

    found = []
    assert num_shards_so_far() == 1
    assert num_shards_of(trace(outer, 1, X).graph) == 3
    assert found == [2, 3]
    assert [ipus_of_shards(count) for count in range(1, 6)] == [1, 2, 4, 4, 8]

"""What the cost model says about collectives."""

import math

import keras
import pytest
import tensorflow as tf

import ipu_keras
from ipu_keras.cost.tile.exchange import (
    Members,
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    reduce_scatter_seconds,
)
from ipu_keras.machine.target import target_named
from ipu_keras.ops.all_to_all_op import all_gather, all_to_all
from ipu_keras.ops.cross_replica_ops import cross_replica_sum
from ipu_keras.ops.distributed_batch_norm import distributed_batch_norm
from ipu_keras.ops.reduce_scatter_op import reduce_scatter
from ipu_keras.tracing.replication import replicated

GC200 = target_named("gc200")


def collectives_of(function, *specs):
    with replicated(4):
        report = ipu_keras.profile(function, *specs)
    return [row for row in report.rows if row.family == "collective"]


@pytest.mark.parametrize(
    ("function", "num_floats", "num_replicas", "seconds"),
    [
        (cross_replica_sum, 1, 4, all_reduce_seconds),
        (lambda x: cross_replica_sum(x, 2), 1, 2, all_reduce_seconds),
        (lambda x: all_gather(x, 4), 4, 4, all_gather_seconds),
        (lambda x: all_gather(x, 2), 2, 2, all_gather_seconds),
        (lambda x: all_to_all(x, 0, 0, 4), 1, 4, all_to_all_seconds),
        (lambda x: reduce_scatter(x, 4), 1, 4, reduce_scatter_seconds),
    ],
)
def test_the_links_carry_the_bytes_of_a_group(function, num_floats, num_replicas, seconds):
    """For each 64 floats that are on a tile."""
    (row,) = collectives_of(function, tf.TensorSpec((GC200.num_tiles * 64,)))
    per_tile = 4 * 64 * num_floats
    members = Members(num_replicas, num_replicas)
    expected = seconds(GC200, per_tile * GC200.num_tiles, members) * GC200.clock_hz
    assert row.cycles == math.ceil(expected)
    assert row.detail == f"{num_replicas} replicas"
    assert row.exchange_bytes == per_tile


def test_a_collective_belongs_to_its_layer():
    layer = keras.layers.BatchNormalization(name="norm")
    layer.build((8, 4))  # whose name that of its call does not repeat

    def step(x):
        with distributed_batch_norm(2), tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return tape.gradient(y, x, x)

    forward, backward = collectives_of(step, tf.TensorSpec((8, 4)))
    assert forward.layer == backward.layer == "norm"
    assert (forward.backward, backward.backward) == (False, True)

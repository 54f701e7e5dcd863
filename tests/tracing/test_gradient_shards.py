"""Shards of gradients, on graphs built by hand, and on traces."""

from dataclasses import replace

import pytest
import tensorflow as tf
from hlo_graphs import graph, op

from ipu_keras.sharding import sharded
from ipu_keras.tracing.gradient_shards import with_shards_of_gradients
from ipu_keras.tracing.hlo import hlo_graph


def shards_of(*ops, traced=()):
    found = with_shards_of_gradients(graph(*ops), lambda: dict(traced))
    return {one.name: one.shard for one in found.ops}


def forward(name, shard):
    return replace(op(name, "add", ()), shard=shard)


def gradient(name):
    return op(name, "add", (), backward=True)


def test_gradients_follow_names():
    found = shards_of(
        forward("a/MatMul/dot", 1),
        forward("a/b/Tanh/tanh", 2),
        forward("c/x/add", 0),
        forward("c/y/add", 3),
        gradient("gradient_tape/a/MatMul/MatMul_1/dot"),
        gradient("gradients/a/b/Tanh_grad/TanhGrad/multiply"),
        # Of an operation of that scope, which is on one IPU, and of one that is on two.
        gradient("gradient_tape/a/b/ReluGrad/select"),
        gradient("gradient_tape/c/ReluGrad/select"),
        gradient("gradient_tape/other/add"),
    )
    assert list(found.values())[4:] == [1, 2, 2, None, None]


def test_a_shard_of_its_own_goes_first():
    found = shards_of(
        forward("a/x/add", 1),
        replace(gradient("gradient_tape/a/x/add"), shard=2),
        op("z", "add", ()),
    )
    assert found == {"a/x/add": 1, "gradient_tape/a/x/add": 2, "z": None}


def test_gradients_of_what_nobody_needs():
    found = shards_of(
        forward("a/MatMul/dot", 1),
        gradient("gradient_tape/b/MatMul_1/MatMul/dot"),
        gradient("gradient_tape/a/Other/add"),
        traced=[("b/MatMul_1", 2), ("a/MatMul", 1), ("a/Tanh", 3)],
    )
    assert list(found.values()) == [1, 2, None]


def test_nothing_is_asked_without_shards():
    ops = graph(op("x", "add", ()), gradient("gradient_tape/x/add"))
    assert with_shards_of_gradients(ops, lambda: pytest.fail("asked")) is ops


def test_gradients_of_a_trace():
    """Those of a tape and of TensorFlow 1; a scope of names is not needed."""

    def layers(x):
        graph = tf.compat.v1.get_default_graph()
        for shard in (1, 0):
            with sharded(graph, [shard]):
                x = tf.matmul(x, x)
        return x

    def taped(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layers(x)
        return tape.gradient(y, x)

    for function in (taped, lambda x: tf.gradients(layers(x), x)):
        traced = tf.function(function).get_concrete_function(tf.TensorSpec([2, 2]))
        dots = [one for one in hlo_graph(traced).ops if one.kind == "dot"]
        # One forward product, as nobody needs the last, and two gradients of each.
        assert sorted((one.shard, one.backward) for one in dots) == [
            (0, True),
            (0, True),
            (1, False),
            (1, True),
            (1, True),
        ]

"""A wrapper that passes everything on."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.optimizers import (
    CrossReplicaOptimizer,
    GradientAccumulationOptimizerV2,
    IpuOptimizer,
    MapGradientOptimizer,
    ShardedOptimizer,
    ipu_optimizer,
)

v1 = tf.compat.v1

WRAPPERS = {
    "plain": IpuOptimizer,
    "cross_replica": CrossReplicaOptimizer,
    "accumulating": lambda opt: GradientAccumulationOptimizerV2(opt, 1),
    "mapping": lambda opt: MapGradientOptimizer(opt, lambda gradient, _: gradient),
    "sharded": ShardedOptimizer,
}


@pytest.fixture(params=WRAPPERS)
def wrap(request):
    return WRAPPERS[request.param]


def adam():
    return v1.train.AdamOptimizer(0.1, name="inner")


def test_trains_as_what_it_wraps(wrap, in_session):
    found = in_session(lambda: wrap(adam()), [1.0, -2.0, 3.0])
    np.testing.assert_array_equal(found, in_session(adam, [1.0, -2.0, 3.0]))


def test_trains_on_an_ipu_as_in_a_session(wrap, in_session, on_ipu):
    batches = [1.0, -2.0, 3.0]
    found = on_ipu(lambda: wrap(adam()), batches)
    np.testing.assert_allclose(found, in_session(adam, batches), rtol=1e-6)


def test_state_is_that_of_the_wrapped_optimizer():
    weight = tf.Variable([1.0])
    inner = adam()
    optimizer = IpuOptimizer(inner)
    optimizer.apply_gradients([(tf.constant([1.0]), weight)])
    assert optimizer.get_name() == "inner"
    assert optimizer.wrapped is inner
    assert optimizer.get_slot_names() == ["m", "v"]
    assert optimizer.get_slot(weight, "m") is inner.get_slot(weight, "m")
    assert optimizer.get_slot(var=weight, name="other") is None
    assert [v is w for v, w in zip(optimizer.variables(), inner.variables(), strict=True)] == [
        True
    ] * 4


@pytest.mark.parametrize("restores_first", [False, True])
def test_checkpoints(tmp_path, wrap, restores_first):
    gradients = [tf.constant([1.0]), tf.constant([-3.0])]

    def checkpoint_of(make):
        optimizer, weight = make(adam()), tf.Variable([1.0])
        return tf.train.Checkpoint(optimizer=optimizer, weight=weight), optimizer, weight

    saved, optimizer, weight = checkpoint_of(wrap)
    optimizer.apply_gradients([(gradients[0], weight)])
    path = saved.save(tmp_path / "checkpoint")
    # The wrapped optimizer alone can go on with it, if it was all that had state.
    is_alone = len(optimizer.variables()) == len(optimizer.wrapped.variables())
    for make in (wrap, lambda opt: opt)[: 1 + is_alone]:
        loaded, other, copy = checkpoint_of(make)
        if not restores_first:
            other.apply_gradients([(tf.constant([7.0]), copy)])
        status = loaded.restore(path)
        other.apply_gradients([(gradients[1], copy)])
        status.assert_existing_objects_matched()
        expected_optimizer, expected = adam(), tf.Variable([1.0])
        for gradient in gradients:
            expected_optimizer.apply_gradients([(gradient, expected)])
        np.testing.assert_array_equal(copy, expected)


def test_optimizers_of_keras_are_refused(wrap):
    message = r"^Should use optimizer in keras\.ipu\.optimizers \(in the Keras package\) to wrap V2"
    with pytest.raises(ValueError, match=rf"{message} optimizers\n.* Received: \w+=<keras"):
        wrap(keras.optimizers.SGD())


def test_no_gradients(wrap):
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        wrap(adam()).apply_gradients([(None, tf.Variable(1.0))])


def test_examples_in_the_documentation():
    assert doctest.testmod(ipu_optimizer).failed == 0

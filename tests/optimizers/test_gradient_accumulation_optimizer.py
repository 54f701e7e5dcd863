"""Weight updates from the gradients of several batches, in sessions, on an IPU, in loops."""

import doctest
import re

import numpy as np
import pytest
import tensorflow as tf
from said import said

from ipu_keras.optimizers import (
    CrossReplicaGradientAccumulationOptimizer,
    CrossReplicaGradientAccumulationOptimizerV2,
    CrossReplicaOptimizer,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
    IpuOptimizer,
    MapGradientOptimizer,
    gradient_accumulation_optimizer,
)
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod

v1 = tf.compat.v1

# The last two are not enough for an update.
BATCHES = [1.0, 2.0, -5.0, 4.0, 1.0, 1.0, 3.0, 9.0]
STOCK = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.5),
    "momentum": lambda: v1.train.MomentumOptimizer(0.5, 0.5),
    "adam": lambda: v1.train.AdamOptimizer(0.1),
}


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


@pytest.fixture(params=STOCK)
def stock(request):
    return STOCK[request.param]


def held(found):
    """Updates after every third batch, as they are seen after each batch."""
    start = np.array([[1.0, 0.0, 0.0]])
    return np.repeat(np.concatenate([start, found]), 3, axis=0)[1 : 1 + len(BATCHES)]


def summed(batches=BATCHES):
    return [sum(batches[k : k + 3]) for k in (0, 3)]


def test_each_third_batch_in_a_session(in_session, stock):
    found = in_session(lambda: GradientAccumulationOptimizerV2(stock(), 3), BATCHES)
    np.testing.assert_allclose(found, held(in_session(stock, summed())), rtol=1e-6)


@pytest.mark.parametrize("jit_compile", [None, True])
def test_each_third_batch_on_an_ipu(on_ipu, in_session, stock, jit_compile):
    def make():
        return GradientAccumulationOptimizerV2(stock(), 3)

    found = on_ipu(make, BATCHES, jit_compile=jit_compile)
    np.testing.assert_allclose(found, held(in_session(stock, summed())), rtol=1e-6)


def test_by_hand(in_session):
    found = in_session(lambda: GradientAccumulationOptimizer(STOCK["momentum"](), 2), BATCHES[:4])
    # Gradients of the weight: 3, then -1 and half of the momentum of 3.
    np.testing.assert_array_equal(found[:, 0], [1.0, -0.5, -0.5, -0.75])
    np.testing.assert_array_equal(found[:, 2], [0, 1, 1, 2])


@pytest.mark.parametrize(
    "make",
    [
        lambda opt: CrossReplicaGradientAccumulationOptimizerV2(opt, 3),
        lambda opt: CrossReplicaGradientAccumulationOptimizer(opt, 3, verify_usage=False),
        lambda opt: GradientAccumulationOptimizerV2(CrossReplicaOptimizer(opt), 3),
        lambda opt: GradientAccumulationOptimizerV2(
            MapGradientOptimizer(CrossReplicaOptimizer(opt), lambda gradient, _: gradient), 3
        ),
        lambda opt: CrossReplicaOptimizer(GradientAccumulationOptimizerV2(opt, 3)),
    ],
    ids=["V2", "V1", "outside", "mapped", "inside"],
)
def test_two_replicas(on_ipu, in_session, make):
    found = on_ipu(lambda: make(STOCK["momentum"]()), BATCHES, num_replicas=2)
    # The second replica's batches are larger by 1, the average by a half.
    averages = [batch + 0.5 for batch in BATCHES]
    np.testing.assert_allclose(
        found, held(in_session(STOCK["momentum"], summed(averages))), rtol=1e-6
    )


def test_one_mini_batch_is_no_accumulation(in_session, stock):
    found = in_session(lambda: GradientAccumulationOptimizerV2(stock(), 1), BATCHES)
    np.testing.assert_array_equal(found, in_session(stock, BATCHES))


@pytest.mark.parametrize(
    "method", ["mean", "RUNNING_MEAN", GradientAccumulationReductionMethod.MEAN]
)
@pytest.mark.parametrize(
    "wrapper", [GradientAccumulationOptimizerV2, CrossReplicaGradientAccumulationOptimizerV2]
)
def test_means(in_session, wrapper, method):
    def make():
        return wrapper(STOCK["sgd"](), 3, reduction_method=method)

    expected = held(in_session(STOCK["sgd"], [total / 3 for total in summed()]))
    np.testing.assert_allclose(in_session(make, BATCHES), expected, rtol=1e-5, atol=1e-6)


def test_in_a_loop(stock, in_session):
    """As the body of `ipu.loops.repeat`: nothing but the returned operation is waited for."""
    with tf.Graph().as_default(), v1.Session() as session:
        batches = tf.constant(BATCHES)
        weight = v1.get_variable("weight", initializer=1.0)
        optimizer = GradientAccumulationOptimizerV2(stock(), 3)

        def body(index):
            with tf.control_dependencies([optimizer.minimize(weight * batches[index])]):
                return index + 1

        done = v1.while_loop(
            lambda index: index < len(BATCHES), body, [tf.constant(0)], parallel_iterations=1
        )
        session.run(v1.global_variables_initializer())
        session.run(done)
        expected = in_session(stock, summed())[-1, 0]
        np.testing.assert_allclose(session.run(weight), expected, rtol=1e-6)


def test_without_the_behaviour_of_tensorflow_2(run_forked):
    script = """
        import tensorflow.compat.v1 as tf
        from tensorflow.python.ipu.optimizers import GradientAccumulationOptimizerV2
        tf.disable_v2_behavior()
        x = tf.placeholder(tf.float32, [])
        weight = tf.get_variable("weight", initializer=1.0)
        optimizer = GradientAccumulationOptimizerV2(
            tf.train.GradientDescentOptimizer(0.5), 2, reduction_method="running_mean"
        )
        operation = optimizer.minimize(weight * x)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for batch in (1.0, 3.0, 5.0, 1.0):
                session.run(operation, {x: batch})
                print(session.run(weight), type(weight).__name__)
        """
    assert run_forked(script).stdout.split("\n") == [
        *(f"{value} RefVariable" for value in (1.0, 0.0, 0.0, -1.5)),
        "",
    ]


def test_groups_of_variables_take_turns():
    first, second = tf.Variable(0.0), tf.Variable(0.0)
    optimizer = GradientAccumulationOptimizerV2(v1.train.GradientDescentOptimizer(1.0), 2)
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant(-1.0), first)])
        optimizer.apply_gradients([(tf.constant(-3.0), second), (None, first)])
    assert (float(first), float(second)) == (2.0, 6.0)


def test_an_overflow_is_forgotten_after_the_update():
    weight = tf.Variable(0.0)
    optimizer = GradientAccumulationOptimizerV2(
        v1.train.GradientDescentOptimizer(1.0), 1, reduction_method="running_mean"
    )
    optimizer.apply_gradients([(tf.constant(np.inf), weight)])
    weight.assign(0.0)
    optimizer.apply_gradients([(tf.constant(-1.0), weight)])
    assert float(weight) == 1.0


def test_gradients_of_lookups_are_dense():
    table = tf.Variable(tf.zeros([3, 1]))
    optimizer = GradientAccumulationOptimizerV2(v1.train.GradientDescentOptimizer(1.0), 2)
    for row in (0, 2):
        slices = tf.IndexedSlices(-tf.ones([2, 1]), tf.constant([row, 1]), tf.constant([3, 1]))
        optimizer.apply_gradients([(slices, table)])
    np.testing.assert_array_equal(table, [[1], [2], [1]])


class Recorder(IpuOptimizer):
    """Notes the types of gradients, and casts them."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        pairs = list(grads_and_vars)
        self.dtypes = [gradient.dtype for gradient, _ in pairs]
        cast = [(tf.cast(gradient, variable.dtype), variable) for gradient, variable in pairs]
        return super().apply_gradients(cast, global_step, name)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (None, [tf.float16, tf.float32]),
        (tf.float32, [tf.float32, tf.float32]),
        (
            lambda variable: tf.bfloat16 if variable.shape.rank else "float32",
            ["float32", "bfloat16"],
        ),
    ],
)
def test_type_of_accumulators(dtype, expected):
    weights = [tf.Variable(1.0, dtype=tf.float16), tf.Variable([1.0])]
    recorder = Recorder(v1.train.GradientDescentOptimizer(1.0))
    optimizer = GradientAccumulationOptimizerV2(recorder, 2, dtype=dtype)
    for _ in range(2):
        gradients = [tf.constant(2.0**-12, tf.float16), tf.constant([0.5])]
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
    assert recorder.dtypes == expected
    slots = [optimizer.get_slot(weight, "gradient_accumulator").dtype for weight in weights]
    assert slots == expected
    assert [w.numpy().item() for w in weights] == [1.0 - 2.0**-11, 0.0]


def test_a_type_that_the_optimizer_does_not_take():
    optimizer = GradientAccumulationOptimizerV2(STOCK["sgd"](), 2, dtype=tf.float16)
    message = (
        "The accumulated gradients must have the type of the variable for "
        "GradientDescentOptimizer. Leave `dtype` out, or wrap that optimizer in a subclass of "
        "IpuOptimizer whose `apply_gradients` casts them. Received: gradients of float16 for "
    )
    with raises(ValueError, message):
        optimizer.apply_gradients([(tf.constant(1.0), tf.Variable(1.0))])
    with raises(TypeError, "`dtype` must be None, a floating point type"):
        GradientAccumulationOptimizerV2(STOCK["sgd"](), 2, dtype=tf.int32)


def test_state():
    weight = tf.Variable([1.0])
    optimizer = GradientAccumulationOptimizerV2(STOCK["adam"](), 3)
    for _ in range(4):
        optimizer.apply_gradients([(tf.constant([1.0]), weight)])
    assert optimizer.get_slot_names() == ["gradient_accumulator", "m", "num_accumulated", "v"]
    assert optimizer.get_slot(weight, "gradient_accumulator").numpy() == [1.0]
    assert optimizer.get_slot(weight, "num_accumulated").numpy() == 1
    assert optimizer.get_slot(weight, "m") is optimizer.wrapped.get_slot(weight, "m")
    assert optimizer.get_slot(weight, "other") is None
    assert len(optimizer.variables()) == 6


@pytest.mark.parametrize("dtype", [None, tf.bfloat16])
def test_checkpoints_in_the_middle_of_an_accumulation(tmp_path, dtype):
    def make():
        optimizer = GradientAccumulationOptimizerV2(Recorder(STOCK["adam"]()), 2, dtype=dtype)
        weight = tf.Variable([1.0])
        return tf.train.Checkpoint(optimizer=optimizer, weight=weight), optimizer, weight

    checkpoint, optimizer, weight = make()
    for _ in range(3):
        optimizer.apply_gradients([(tf.constant([1.0]), weight)])
    path = checkpoint.save(tmp_path / "checkpoint")
    loaded, other, copy = make()
    status = loaded.restore(path)
    for each, variable in ((optimizer, weight), (other, copy)):
        each.apply_gradients([(tf.constant([-4.0]), variable)])
    status.assert_consumed()
    np.testing.assert_array_equal(weight, copy)


def test_savers_and_collections_of_graphs(tmp_path):
    def train(session, x, operation, batches):
        for batch in batches:
            session.run(operation, {x: batch})

    def build():
        x = v1.placeholder(tf.float32, [])
        weight = v1.get_variable("weight", initializer=1.0)
        optimizer = GradientAccumulationOptimizerV2(STOCK["adam"](), 2)
        operation = optimizer.minimize(weight * x, name="train")
        assert operation.name == "train"
        return x, weight, operation

    with tf.Graph().as_default() as graph, v1.Session() as session:
        x, weight, operation = build()
        assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [operation]
        session.run(v1.global_variables_initializer())
        train(session, x, operation, [1.0, 2.0, 3.0])
        path = v1.train.Saver().save(session, str(tmp_path / "model"))
        train(session, x, operation, [4.0])
        expected = session.run(weight)
    with tf.Graph().as_default() as graph, v1.Session() as session:
        v1.train.import_meta_graph(f"{path}.meta").restore(session, path)
        [operation] = v1.get_collection(v1.GraphKeys.TRAIN_OP)
        train(session, graph.get_tensor_by_name(x.name), operation, [4.0])
        assert session.run(v1.trainable_variables()) == [expected]


@pytest.mark.parametrize("num_mini_batches", [0, -1, 1.5, True, None])
@pytest.mark.parametrize(
    "wrapper",
    [
        CrossReplicaGradientAccumulationOptimizer,
        CrossReplicaGradientAccumulationOptimizerV2,
        GradientAccumulationOptimizer,
        GradientAccumulationOptimizerV2,
    ],
)
def test_not_a_number_of_batches(wrapper, num_mini_batches):
    message = "num_mini_batches must be a positive number."
    with raises(ValueError, message) as caught:
        wrapper(STOCK["sgd"](), num_mini_batches)
    assert str(caught.value) == message
    assert said(caught.value).endswith(f"Received: num_mini_batches={num_mini_batches!r}")


@pytest.mark.parametrize(
    "wrapper", [CrossReplicaGradientAccumulationOptimizer, GradientAccumulationOptimizer]
)
def test_usage_of_the_first_version(wrapper):
    def squared(gradient, variable):
        return gradient**2

    for name in ("sgd", "momentum"):
        wrapper(MapGradientOptimizer(STOCK[name](), squared), 2)
    message = (
        "This optimizer supports GradientDescentOptimizer and MomentumOptimizer only. Use its V2 "
        "for others, or pass `verify_usage=False`. Received: AdamOptimizer"
    )
    with raises(ValueError, message):
        wrapper(MapGradientOptimizer(STOCK["adam"](), squared), 2)
    wrapper(STOCK["adam"](), 2, verify_usage=False)


@pytest.mark.parametrize(
    "wrapper",
    [CrossReplicaGradientAccumulationOptimizerV2, GradientAccumulationOptimizerV2],
)
def test_options_of_memory(wrapper):
    for name in ("offload_weight_update_variables", "replicated_optimizer_state_sharding"):
        message = f"{name} of a gradient accumulation optimizer has no effect here: "
        with pytest.warns(UserWarning, match=f"^{re.escape(message)}"):
            wrapper(STOCK["sgd"](), 2, **{name: True})
        wrapper(STOCK["sgd"](), 2, **{name: None})
        with raises(TypeError, f"`{name}` must be True, False or None. Received: {name}='yes'"):
            wrapper(STOCK["sgd"](), 2, **{name: "yes"})


def test_examples_in_the_documentation():
    assert doctest.testmod(gradient_accumulation_optimizer).failed == 0

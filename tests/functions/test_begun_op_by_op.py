"""Loops and pipelines in graphs run op by op until XLA pays, and go on with the same variables.

Which way runs shows in a lookup outside of a table: TensorFlow refuses it, XLA takes the nearest.
"""

import numpy as np
import pytest
import tensorflow as tf
from in_sessions import compiled, configure, opened

from ipu_keras import loops, pipelining_ops
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.cross_replica_ops import cross_replica_sum

v1 = tf.compat.v1
TABLE = np.float32([1.0, 2.0, 4.0])
# Nobody has 32 steps behind him before the ninth execution of four.
NUM_BEFORE_XLA = 8
REFUSED = pytest.raises(tf.errors.InvalidArgumentError, match="is not in")


@pytest.fixture(autouse=True)
def xla_after_32_steps(monkeypatch):
    monkeypatch.setenv("IPU_KERAS_FIRST_STEPS", "8")
    yield
    SYSTEM.reset()


def places(num_known, num_replicas=1):
    """So many places of the table for each replica, then ones that it does not have."""
    known = [k % 3 for k in range(num_known * num_replicas)]
    return tf.data.Dataset.from_tensor_slices(np.int32(known + [5] * 8 * num_replicas))


def body_with(total, num_replicas):
    def body(place):
        value = tf.gather(TABLE, place)
        return total().assign_add(cross_replica_sum(value) if num_replicas > 1 else value).op

    return body


def of_a_function(num_replicas, num_known, **options):
    """What runs four steps by `strategy.run`, and what reads the sum that they write."""
    strategy = IPUStrategy()
    with strategy.scope():
        total = tf.Variable(0.0)
    infeed = IPUInfeedQueue(places(num_known, num_replicas))
    infeed.initializer  # noqa: B018
    body = body_with(lambda: total, num_replicas)
    function = tf.function(lambda: loops.repeat(4, body, [], infeed) and None, **options)
    return lambda: strategy.run(function), total.numpy


def of_a_jitted_function(num_replicas, num_known):
    """As `of_a_function`; XLA cannot have all of it, as it reads an infeed."""
    return of_a_function(num_replicas, num_known, jit_compile=True)


def of_a_session(num_replicas, num_known):
    """As `of_a_function`, by a session."""
    infeed = IPUInfeedQueue(places(num_known, num_replicas))
    options = {"initializer": v1.zeros_initializer, "use_resource": True}
    body = body_with(lambda: v1.get_variable("total", (), **options), num_replicas)
    run = compiled(lambda: loops.repeat(4, body, [], infeed))
    [total] = v1.global_variables()
    session = opened(infeed.initializer)
    return lambda: session.run(run), lambda: session.run(total)


@pytest.fixture(params=[of_a_function, of_a_jitted_function, of_a_session])
def made(request):
    if request.param is not of_a_session:
        yield request.param
    else:
        with tf.Graph().as_default():
            yield request.param


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_xla_begins_after_so_many_steps_and_goes_on(made, num_replicas):
    configure(num_replicas)
    num_known = 4 * (NUM_BEFORE_XLA + 1)
    run, total = made(num_replicas, num_known)
    for _ in range(NUM_BEFORE_XLA + 1):
        run()
    expected = sum(TABLE[k % 3] for k in range(num_known * num_replicas))
    assert total() == expected
    run()
    assert total() == expected + 4 * num_replicas * TABLE[-1]


def test_the_last_execution_before_is_op_by_op(made):
    configure(1)
    run, _ = made(1, 4 * (NUM_BEFORE_XLA - 1))
    for _ in range(NUM_BEFORE_XLA - 1):
        run()
    with REFUSED:
        run()


def test_a_loop_without_feeds_can_still_be_saved(tmp_path):
    """A variable that tells how it runs would be one that no object of the user's has."""
    configure(1)
    strategy = IPUStrategy()
    with strategy.scope():
        module = tf.Module()
        module.total = tf.Variable(1.0)

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def function(x):
        return loops.repeat(3, lambda x: x + module.total.assign_add(1.0), [x])

    module.function = function
    assert strategy.run(function, [tf.constant(1.0)]).numpy() == 1.0 + 2.0 + 3.0 + 4.0
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert loaded.function(tf.constant(0.0)).numpy() == 5.0 + 6.0 + 7.0


@pytest.mark.parametrize("options", [{"jit_compile": True}, {}], ids=["asked for", "no writes"])
def test_xla_from_the_start(options):
    configure(1)
    strategy = IPUStrategy()
    with strategy.scope():
        total = tf.Variable(0.0)
    outside = tf.constant([7])

    def body(value):
        value += tf.gather(TABLE, outside)[0]
        return total.assign_add(value) if options else value

    run = tf.function(lambda: loops.repeat(2, body, [0.0]), **options)
    # A loop that only computes answers alike from its first execution on.
    expected = 3 * TABLE[-1] if options else 2 * TABLE[-1]
    assert strategy.run(run).numpy() == expected


def test_a_pipeline_trains_the_same_weights_before_and_after(made):
    """One weight, each of whose gradients is what came in: NumPy adds them up."""
    configure(1)
    fed = tf.data.Dataset.range(200).map(lambda k: tf.cast(k, tf.float32))
    infeed, outfeed = IPUInfeedQueue(fed), IPUOutfeedQueue()
    is_function = made is not of_a_session
    if is_function:
        strategy = IPUStrategy()
        with strategy.scope():
            weight = tf.Variable(1.0)
        infeed.initializer  # noqa: B018

    def first(x):
        kept = weight if is_function else v1.get_variable("w", initializer=1.0, use_resource=True)
        return x * kept

    def net():
        return pipelining_ops.pipeline(
            [first, lambda loss: loss],
            gradient_accumulation_count=4,
            reduction_method="sum",
            repeat_count=2,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: pipelining_ops.OptimizerFunctionOutput(
                v1.train.GradientDescentOptimizer(2**-10), loss
            ),
            device_mapping=[0, 0],
        )

    if is_function:
        function = tf.function(lambda: net() and None)
        run, value = lambda: strategy.run(function), weight.numpy
    else:
        operation = compiled(net)
        [kept] = v1.trainable_variables()
        session = opened(infeed.initializer)
        run, value = lambda: session.run(operation), lambda: session.run(kept)
    for executions in range(1, 8):
        run()
        assert value() == 1.0 - sum(range(8 * executions)) * 2**-10

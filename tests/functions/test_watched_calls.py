"""Floating point exceptions stop functions and sessions, which say where, and go on afterwards."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from doors import InASession, UnderAStrategy
from in_sessions import compiled, opened

from ipu_keras import loops
from ipu_keras.config import IPUConfig
from ipu_keras.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.cross_replica_ops import cross_replica_sum
from ipu_keras.ops.replication_ops import replication_index
from ipu_keras.optimizers import CrossReplicaOptimizer
from ipu_keras.pipelining_ops import OptimizerFunctionOutput, pipeline

v1 = tf.compat.v1
STOPPED = "Tiles in excepted state: the program "


@pytest.fixture(autouse=True)
def _reset_afterwards():
    yield
    SYSTEM.reset()


def configure(num_ipus=1, *options):
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = num_ipus
    for name in options or ("inv", "div0", "oflo"):
        setattr(config.floating_point_behaviour, name, True)
    config.configure_ipu_system()


@pytest.fixture(params=["session", None, True], ids=lambda param: f"jit_compile={param}")
def way(request):
    return request.param


@pytest.fixture
def make_door(way):
    doors = []

    def make(num_ipus=1, *options):
        configure(num_ipus, *options)
        doors.append(InASession() if way == "session" else UnderAStrategy(way))
        return doors[-1]

    yield make
    for door in doors:
        door.close()


def stopped(door, x):
    """The message of a run that is stopped."""
    with pytest.raises(tf.errors.InternalError) as caught:
        door.run(x)
    assert str(caught.value).startswith(STOPPED)
    return str(caught.value).removeprefix(STOPPED)


def test_a_function(make_door):
    door = make_door()
    weight = door.variable("weight", 1.0)

    def function(x):
        grown = weight.assign_add(1.0)
        with tf.control_dependencies([grown]), tf.name_scope("mine"):
            return tf.sqrt(x) * weight.read_value()

    door.compile(function)
    assert door.run(4.0) == [4.0]
    assert stopped(door, -4.0).startswith(
        "'function' was stopped by invalid operation (INV) in the operation 'mine/Sqrt' (Sqrt) of "
        "'mine', in step 0 of the execution's 1 (all counts begin with 0). Variables have the "
        "values from before the execution."
        if isinstance(door, InASession)
        else "'tensors_of' was stopped by invalid operation (INV) in the operation 'mine/Sqrt'"
    )
    assert door.read(weight) == 2.0
    assert door.run(4.0) == [6.0]


def dataset(num_elements, bad):
    values = np.ones(num_elements, "float32")
    values[bad] = -1.0
    return tf.data.Dataset.from_tensor_slices(values)


@pytest.mark.parametrize(("way", "num_replicas"), [("session", 2), (None, 1), (True, 2)])
def test_a_loop_that_trains_with_a_gradient_of_infinity(make_door, num_replicas):
    """The square root of zero has one; each step has another element of the infeed."""
    door = make_door(num_replicas)
    weight, outfeed = door.variable("weight", 1.0), IPUOutfeedQueue()
    infeed = door.infeed(dataset(200, bad=(8 + 5) * num_replicas + num_replicas - 1))

    def step(x):
        # Zero where the element is -1.
        loss = tf.sqrt(weight * (x + 1.0))
        optimizer = v1.train.GradientDescentOptimizer(2.0**-7)
        update = CrossReplicaOptimizer(optimizer).minimize(loss, var_list=[weight])
        return outfeed.enqueue(loss), update

    door.compile(lambda _: loops.repeat(8, step, [], infeed), outfeed)
    door.run(0.0)
    before = door.read(weight)
    assert before < 1.0
    message = stopped(door, 0.0)
    assert "division by zero (DIV0) in the operation 'gradient" in message
    assert "(SqrtGrad) in the gradient, in step 5 of " in message
    assert ("of replica 1 of" in message) == (num_replicas == 2)
    assert "the execution's 8 " in message
    assert door.read(weight) == before
    door.run(0.0)
    assert np.isfinite(door.read(weight))
    assert door.read(weight) != before
    # What was sent before an execution stopped stays.
    [sent] = door.sent()
    assert np.shape(sent) == ((24,) if num_replicas == 1 else (24, 2))
    third = np.reshape(sent, (3, 8, -1))[2]
    np.testing.assert_allclose(third[0], np.sqrt(2 * before), rtol=1e-6)


@pytest.mark.parametrize(("way", "num_replicas"), [("session", 1), (None, 2)])
def test_a_pipeline(make_door, num_replicas):
    door = make_door(2 * num_replicas)
    weight, outfeed = door.variable("weight", 1.0), IPUOutfeedQueue()
    infeed = door.infeed(dataset(200, bad=(8 + 5) * num_replicas))

    def optimizer(loss):
        inner = v1.train.GradientDescentOptimizer(0.125)
        return OptimizerFunctionOutput(CrossReplicaOptimizer(inner), loss)

    door.compile(
        lambda _: pipeline(
            [lambda x: weight * x, lambda x: tf.sqrt(x)],
            8,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            outfeed_loss=True,
            optimizer_function=optimizer,
        ),
        outfeed,
    )
    door.run(0.0)
    before = door.read(weight)
    message = stopped(door, 0.0)
    assert (
        "invalid operation (INV) in the operation 'pipeline_stage_1/Sqrt' (Sqrt), in step 5 of "
        in message
    )
    assert ("of replica 0 of" in message) == (num_replicas == 2)
    assert door.read(weight) == before
    door.run(0.0)
    assert door.read(weight) < before


def test_what_each_replica_has(make_door):
    """Values of their own are those from before, too."""
    door = make_door(2)
    weight = door.variable("weight", 1.0)

    def function(x):
        mine = tf.cast(replication_index(), tf.float32)
        grown = weight.assign_add(mine)
        with tf.control_dependencies([grown]):
            return cross_replica_sum(tf.sqrt(x - mine) * weight.read_value())

    door.compile(function)
    expected = [1.0 + 2.0, 1.0 + 3.0] if door.keeps_values else [1.0 + 2.0] * 2
    assert door.run(1.0) == [1.0]
    message = stopped(door, 0.5)
    assert "(Sqrt), in step 0 of replica 1 of the execution's 1" in message
    assert door.run(2.0)[0] == pytest.approx(np.sqrt(2) + expected[1] - 1.0)


def test_halves_that_overflow(make_door):
    door = make_door()
    weight = door.variable("weight", 1.0)

    def function(x):
        half = tf.cast(x, tf.float16)
        updated = weight.assign_add(1.0)
        with tf.control_dependencies([updated]):
            # It would saturate, and be masked then.
            return tf.cast(half * half, tf.float32)

    door.compile(function)
    assert door.run(2.0) == [4.0]
    assert "overflow (OFLO) in the operation 'mul' (Mul)" in stopped(door, 1e3)
    assert door.read(weight) == 2.0
    assert door.run(2.0) == [4.0]


def test_what_is_masked(make_door):
    """An infinity divides, so that the result and the variable are finite."""
    door = make_door()
    weight = door.variable("weight", 1.0)

    def function(x):
        grown = weight.assign_add(1.0)
        with tf.control_dependencies([grown]):
            return 1.0 / tf.math.log(x)

    door.compile(function)
    assert door.run(np.e) == [pytest.approx(1.0)]
    assert "division by zero (DIV0) in the operation 'Log' (Log)" in stopped(door, 0.0)
    assert door.read(weight) == 2.0
    # What was infinite before is no exception.
    assert door.run(np.inf) == [0.0]
    assert door.read(weight) == 3.0


def test_what_is_not_asked_for_and_what_comes_from_outside(make_door):
    door = make_door(1, "div0")
    weight = door.variable("weight", 1.0)

    def function(x):
        grown = weight.assign_add(1.0)
        with tf.control_dependencies([grown]):
            return tf.sqrt(x) + 1.0 / weight.read_value()

    door.compile(function)
    assert np.isnan(door.run(-1.0)[0])
    assert np.isnan(door.run(np.nan)[0])
    assert door.read(weight) == 3.0
    assert door.run(1.0) == [1.25]


def test_numbers_that_are_drawn_are_drawn_once(make_door):
    """The run that looks for the exception has the same ones, and those after it are others."""
    door = make_door()

    def function(x):
        drawn = tf.random.gamma([4], 1.0)
        return drawn, tf.sqrt(drawn - x)

    door.compile(function)
    first, _ = door.run(0.0)
    message = stopped(door, 1e3)
    assert "(Sqrt)" in message
    assert not np.isin(first, door.run(0.0)[0]).any()


# XLA has no queues.
@pytest.mark.parametrize("way", ["session", None])
def test_what_a_function_takes_from_its_own_outfeed(make_door):
    """The run that looks for the exception computes with it as well."""
    door, outfeed = make_door(), IPUOutfeedQueue()
    weight = door.variable("weight", 1.0)

    def function(x):
        sent = [weight.assign_add(1.0), outfeed.enqueue(x)]
        with tf.control_dependencies([each for each in sent if each is not None]):
            return tf.sqrt(2.0 * outfeed.dequeue())

    door.compile(function)
    assert door.run(8.0)[0] == [4.0]
    assert "INV) in the operation 'Sqrt'" in stopped(door, -8.0)
    assert door.read(weight) == 2.0
    assert door.run(2.0)[0] == [2.0]


@pytest.mark.parametrize("way", ["session", None])
def test_elements_that_may_not_be_there(make_door):
    door = make_door()
    total = door.variable("total", 0.0)
    dataset = tf.data.Dataset.from_tensor_slices([4.0, 1.0, 9.0, -1.0, 16.0])
    in_session = isinstance(door, InASession)
    elements = v1.data.make_initializable_iterator(dataset) if in_session else iter(dataset)

    def step(k, found):
        element = elements.get_next_as_optional()
        value = tf.cond(element.has_value(), element.get_value, lambda: 0.0)
        return k + 1, found + tf.sqrt(value)

    def function(x):
        _, found = tf.while_loop(lambda k, _: k < 2, step, (0, x))
        return total.assign_add(found)

    door.compile(function)
    if in_session:
        door._session.run(elements.initializer)
    door.run(0.0)
    assert door.read(total) == 3.0
    assert "(INV) in the operation" in (message := stopped(door, 0.0))
    assert "(Sqrt), in turn 1 of a loop" in message
    assert door.read(total) == 3.0
    # There is one element more.
    door.run(0.0)
    assert door.read(total) == 7.0


def test_what_one_operation_writes_into_several_variables(make_door):
    door = make_door()
    weight, squares = door.variable("weight", 1.0), door.variable("squares", 0.0)

    def function(x):
        handles = {"var": weight.handle, "accum": squares.handle}
        updated = tf.raw_ops.ResourceApplyAdagrad(**handles, lr=1.0, grad=x)
        with tf.control_dependencies([updated] if updated is not None else []):
            return tf.identity(x)

    door.compile(function)
    assert "was stopped by invalid operation (INV) in the operation 'ResourceApplyAdagrad'" in (
        stopped(door, 0.0)
    )
    door.run(2.0)
    assert "overflow (OFLO) in the operation 'ResourceApplyAdagrad'" in stopped(door, 1e30)
    assert (door.read(weight), door.read(squares)) == (0.0, 4.0)


def test_a_loop_of_tensorflow_names_its_turn():
    configure()
    strategy = IPUStrategy()
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def function(elements, scale=2.0):
        for _ in range(1):
            for _ in tf.range(6):
                total.assign_add(scale * tf.sqrt(next(elements)))
        return {"total": total.read_value()}

    elements = iter(dataset(100, bad=8))
    assert strategy.run(function, [elements])["total"] == 12.0
    with pytest.raises(tf.errors.InternalError, match=r"\(Sqrt\), in turn 2 of a loop, in step 0 "):
        strategy.run(function, [elements], {"scale": tf.constant(1.0)})
    assert total == 12.0
    # The data go on behind what the execution has read.
    assert strategy.run(function, [elements])["total"] == 24.0


def test_a_loop_over_an_iterator_goes_on_behind_what_was_read():
    configure()
    total = tf.Variable(0.0)

    @tf.function
    def function(elements):
        for x in elements:
            total.assign_add(tf.sqrt(x))
            if x < 2.0:
                break
        return total.read_value()

    strategy = IPUStrategy()
    elements = iter(tf.data.Dataset.from_tensor_slices([4.0, 1.0, 9.0, -1.0, 16.0, 1.0]))
    assert strategy.run(function, [elements]) == 3.0
    with pytest.raises(tf.errors.InternalError, match="in turn 1 of a loop"):
        strategy.run(function, [elements])
    assert total == 3.0
    assert strategy.run(function, [elements]) == 8.0


def test_a_session_whose_system_is_configured_after_it_was_built():
    SYSTEM.reset()
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [])
        weight = v1.get_variable("weight", initializer=1.0, use_resource=True)

        def function(x):
            with tf.control_dependencies([weight.assign_add(1.0)]):
                return tf.math.log(x)

        fetched = compiled(function, [x])
        configure()
        with opened() as session:
            with pytest.raises(tf.errors.InternalError, match=r"\(DIV0\) in the operation 'Log'"):
                session.run(fetched, {x: 0.0})
            assert session.run([*fetched, weight], {x: 1.0})[0] == 0.0
            assert session.run(weight) == 2.0
            configure(1, "inv")
            expected = (
                r"^Which floating point exceptions .* first runs .*Received: inv, for 'function', "
                "which was compiled for div0, inv, oflo$"
            )
            with pytest.raises(tf.errors.FailedPreconditionError, match=expected):
                session.run(fetched, {x: 1.0})


def test_executions_of_threads_wait_for_each_other():
    """Else one would lower the flag that another has raised: 15 of 300 went on."""
    configure()
    function = tf.function(lambda x: tf.tanh(1.0 / x))
    strategy = IPUStrategy()
    strategy.run(function, (tf.ones(4),))
    wrong = []

    def run(value, stops):
        for _ in range(100):
            try:
                strategy.run(function, (tf.fill(4, value),))
                stopped = False
            except tf.errors.InternalError:
                stopped = True
            wrong.extend([value] * (stopped != stops))

    doing = [(0.0, True), (1.0, False), (1.0, False)]
    threads = [threading.Thread(target=run, args=one) for one in doing]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []

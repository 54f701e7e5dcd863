"""What replicas do for themselves beside loops and pipelines that are programs.

Expectations are computed with NumPy, the values of all replicas in the first axis.
"""

import numpy as np
import pytest
import tensorflow as tf
from doors import InASession, UnderAStrategy
from in_sessions import configure, counting

from ipu_keras import last_report, loops
from ipu_keras.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.cross_replica_ops import cross_replica_mean, cross_replica_sum
from ipu_keras.ops.replication_ops import replication_index
from ipu_keras.optimizers import CrossReplicaOptimizer
from ipu_keras.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline
from ipu_keras.scopes import ipu_shard

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def _reset_afterwards():
    yield
    SYSTEM.reset()


WAYS = ["session", None, False, True]


def in_turns(name, values, ways=WAYS):
    """Runs a test in each way, with one of the values of an argument after the other."""
    return pytest.mark.parametrize(
        ("jit", name), [(way, values[k % len(values)]) for k, way in enumerate(ways)]
    )


# Of tests which ask for nothing that XLA or TensorFlow could do in another way.
in_few_ways = pytest.mark.parametrize("jit", ["session", True])
before_anything_runs = pytest.mark.parametrize("jit", ["session", None])


@pytest.fixture(params=WAYS, ids=lambda param: f"jit_compile={param}")
def jit(request):
    return request.param


@pytest.fixture
def make_door(jit, monkeypatch):
    """Makes the way to run a function on a device of so many IPUs.

    Programs in it begin op by op in one of the ways, as they do for users, else XLA compiles them.
    """
    doors = []
    if jit is not None:
        monkeypatch.setenv("IPU_KERAS_FIRST_STEPS", "0")

    def make(num_ipus):
        configure(num_ipus)
        doors.append(InASession() if jit == "session" else UnderAStrategy(jit))
        return doors[-1]

    yield make
    for door in doors:
        door.close()


def index():
    return tf.cast(replication_index(), tf.float32)


class Elements:
    """What replicas read of `counting`: they take turns."""

    def __init__(self, num_replicas):
        self._num_replicas = num_replicas
        self._next = 0.0

    def read(self):
        found = self._next + np.arange(self._num_replicas)
        self._next += self._num_replicas
        return found


@in_turns("num_replicas", [2, 4])
def test_a_loop_beside_all_that_a_replica_can_do(make_door, num_replicas):
    """Reads and writes, exchanges, variables and values that are captured or handed on."""
    door = make_door(num_replicas)
    inside, outside = door.variable("inside", 1.0), door.variable("outside", 0.0)
    infeed, outfeed, last = door.infeed(counting()), IPUOutfeedQueue(), IPUOutfeedQueue()

    def function(x):
        outside.assign_add(0.5 * index())
        first = infeed._dequeue()
        mean = cross_replica_mean(first)

        def body(total, element):
            inside.assign_add(element * outside)
            return total + element * first, outfeed.enqueue({"inside": inside.read_value()})

        total = loops.repeat(3, body, [first + x], infeed)
        total_sum = cross_replica_sum(total)
        with tf.control_dependencies([outside.assign_add(0.125 * inside)]):
            sent = last.enqueue((inside.read_value(), outside.read_value(), total))
        return total, total_sum, mean, sent

    door.compile(function, outfeed, last)
    results = [door.run(2.0)[:3] for _ in range(2)]
    elements, expected, in_loop, after = Elements(num_replicas), [], [], []
    own, other = np.ones(num_replicas), np.zeros(num_replicas)
    for _ in range(2):
        if not door.keeps_values:
            own, other = own[:1].repeat(num_replicas), other[:1].repeat(num_replicas)
        other = other + 0.5 * np.arange(num_replicas)
        first = elements.read()
        total = first + 2.0
        for _ in range(3):
            element = elements.read()
            own = own + element * other
            total = total + element * first
            in_loop.append(own)
        other = other + 0.125 * own
        after.append([own, other, total])
        expected.append([total[0], total.sum(), first.mean()])
    np.testing.assert_allclose(results, expected, rtol=1e-6)
    sent, sent_after = door.sent()
    np.testing.assert_allclose(sent["inside"], in_loop, rtol=1e-6)
    np.testing.assert_allclose(np.swapaxes(sent_after, 0, 1), after, rtol=1e-6)
    assert door.read(inside) == pytest.approx(own[0])
    assert door.read(outside) == pytest.approx(other[0])


@in_turns("num_replicas", [4, 2])
def test_two_loops_share_the_variables_of_each_replica(make_door, num_replicas):
    """Nothing is beside them, but what one leaves to a replica the other takes up."""
    door = make_door(num_replicas)
    weight = door.variable("weight", 1.0)
    infeed, outfeed = door.infeed(counting()), IPUOutfeedQueue()

    def adding(total, element):
        weight.assign_add(element)
        return total + element

    def scaling(total, element):
        # Plain operations, which could be computed for several replicas at once.
        return total * 2.0, outfeed.enqueue((weight * element, total))

    def function(x):
        total = loops.repeat(2, adding, [x], infeed)
        return loops.repeat(2, scaling, [total], infeed)

    door.compile(function, outfeed)
    results = [door.run(1.0)[0] for _ in range(2)]
    elements, totals, products, handed = Elements(num_replicas), [], [], []
    own = np.ones(num_replicas)
    for _ in range(2):
        if not door.keeps_values:
            own = own[:1].repeat(num_replicas)
        total = np.ones(num_replicas)
        for _ in range(2):
            element = elements.read()
            own, total = own + element, total + element
        for _ in range(2):
            products.append(own * elements.read())
            handed.append(total)
            total = total * 2.0
        totals.append(total[0])
    np.testing.assert_array_equal(results, totals)
    ((sent_products, sent_totals),) = door.sent()
    np.testing.assert_array_equal(sent_products, products)
    np.testing.assert_array_equal(sent_totals, handed)
    assert door.read(weight) == own[0]


@in_few_ways
def test_a_variable_that_is_set_outside_of_a_loop_is_set_for_all_replicas(make_door):
    door = make_door(2)
    weight, infeed, outfeed = (
        door.variable("weight", 1.0),
        door.infeed(counting()),
        IPUOutfeedQueue(),
    )

    def body(element):
        return outfeed.enqueue(weight.assign_add(element))

    def function(x):
        with tf.control_dependencies([weight.assign(x)]):
            loops.repeat(2, body, [], infeed)
        return weight.read_value()

    door.compile(function, outfeed)
    assert [float(np.squeeze(door.run(x))) for x in (10.0, 20.0)] == [12.0, 30.0]
    (sent,) = door.sent()
    np.testing.assert_array_equal(sent, [[10, 11], [12, 14], [24, 25], [30, 32]])


@in_turns("mode", list(IPUOutfeedMode))
def test_replicas_read_and_write_the_same_queues_in_loops_and_beside(make_door, mode):
    door = make_door(2)
    infeed = door.infeed(counting())
    inside, after = (IPUOutfeedQueue(outfeed_mode=mode) for _ in range(2))

    def function(x):
        before = infeed._dequeue()
        loops.repeat(2, lambda element: inside.enqueue(x * element), [], infeed)
        return before, after.enqueue(before + infeed._dequeue())

    door.compile(function, inside, after)
    assert [float(door.run(1.0)[0]) for _ in range(2)] == [0.0, 8.0]
    looped, summed = door.sent()
    expected = np.array([[2, 3], [4, 5], [10, 11], [12, 13]])
    sums = np.array([[0 + 6, 1 + 7], [8 + 14, 9 + 15]])
    is_last = mode is IPUOutfeedMode.LAST
    np.testing.assert_array_equal(looped, expected[-1] if is_last else expected)
    np.testing.assert_array_equal(summed, sums[-1] if is_last else sums)


@in_few_ways
def test_a_long_loop_that_is_run_in_parts(make_door):
    """Elements of 4 MiB, 8 steps of 2 replicas at once; what is handed on is each replica's."""
    door = make_door(2)
    dataset = counting().map(lambda number: tf.fill([1024, 1024], number))
    infeed, outfeed = door.infeed(dataset), IPUOutfeedQueue()

    def function(x):
        start = x + 10.0 * index()
        total = loops.repeat(16, lambda total, e: total + e[0, 0], [start], infeed)
        return total, outfeed.enqueue(total)

    door.compile(function, outfeed)
    expected = [1.0 + sum(range(0, 32, 2)), 11.0 + sum(range(1, 32, 2))]
    assert float(door.run(1.0)[0]) == expected[0]
    np.testing.assert_array_equal(door.sent(), [[expected]])


def test_loops_in_functions_that_functions_call(make_door):
    """Also one of a fixed length in the turns of another loop."""
    door = make_door(2)
    weight = door.variable("weight", 0.0)
    infeed, outfeed = door.infeed(counting()), IPUOutfeedQueue()

    def body(total, element):
        weight.assign_add(total)
        return total + element

    @tf.function
    def inner(start):
        return loops.repeat(2, body, [start + index()], infeed)

    def function(x):
        total = cross_replica_sum(inner(x))
        _, total = tf.while_loop(
            lambda turn, _: turn < 2, lambda turn, total: (turn + 1, inner(total)), [0, total]
        )
        return total, outfeed.enqueue(weight.read_value())

    door.compile(function, outfeed)
    found = float(door.run(1.0)[0])
    elements, own = Elements(2), np.zeros(2)

    def called(start):
        nonlocal own
        total = start + np.arange(2)
        for _ in range(2):
            own = own + total
            total = total + elements.read()
        return total

    total = called(np.ones(2)).sum() * np.ones(2)
    for _ in range(2):
        total = called(total)
    assert found == total[0]
    np.testing.assert_array_equal(door.sent(), [[own]])


# Pipelines


class Stages:
    """Two stages of two weights, whose loss is the mean of squares; what NumPy makes of it.

    Args:
        door: To run functions.
        averages: Whether replicas average gradients.
    """

    def __init__(self, door, averages):
        self._averages = averages
        self.weights = [door.variable(f"weight_{k}", 1.0 + k) for k in range(2)]
        self.infeed = door.infeed(counting().map(lambda number: number / 16.0))
        self.losses = IPUOutfeedQueue()

    def pipeline(self, rate, count):
        def optimizer(rate, loss):
            made = v1.train.GradientDescentOptimizer(rate)
            return OptimizerFunctionOutput(
                CrossReplicaOptimizer(made) if self._averages else made, loss
            )

        return pipeline(
            [
                lambda rate, x: (rate * 1.0, x * self.weights[0]),
                lambda rate, x: (rate, (x * self.weights[1] - 1.0) ** 2),
            ],
            count,
            inputs=[rate],
            infeed_queue=self.infeed,
            outfeed_queue=self.losses,
            outfeed_loss=True,
            optimizer_function=optimizer,
            pipeline_schedule=PipelineSchedule.Grouped,
        )

    def expected(self, weights, rate, batches):
        """Losses, and weights after it; `rate` and each of `weights` and `batches` by replica."""
        first, second = weights
        gradients, losses = np.zeros((2, len(first))), []
        for x in batches:
            error = x * first * second - 1.0
            losses.append(error**2)
            gradients += 2 * error * x * np.stack([second, first])
        if self._averages:
            gradients[:] = gradients.mean(axis=1, keepdims=True)
        return losses, np.stack(weights) - rate * gradients


@pytest.mark.parametrize(
    ("jit", "num_replicas", "averages"),
    [
        (way, num_replicas, (k + num_replicas) % 2 == 0)
        for k, way in enumerate(WAYS)
        for num_replicas in (1, 2)
    ],
)
def test_a_pipeline_beside_what_replicas_do(make_door, num_replicas, averages):
    """Each has other weights before, of the first stage, and another rate of learning."""
    door = make_door(2 * num_replicas)
    stages, outfeed = Stages(door, averages), IPUOutfeedQueue()

    def function(x):
        with ipu_shard(1):
            rate = x * (1.0 + index())
            mean = cross_replica_mean(stages.infeed._dequeue())
        stages.weights[0].assign_add(0.25 * index())
        trained = stages.pipeline(rate, 4)
        with tf.control_dependencies([trained]):
            return mean, outfeed.enqueue([weight.read_value() for weight in stages.weights])

    door.compile(function, stages.losses, outfeed)
    means = [float(door.run(0.125)[0]) for _ in range(3)]
    elements, expected_means, losses, after = Elements(num_replicas), [], [], []
    weights = np.array([[1.0] * num_replicas, [2.0] * num_replicas])
    for _ in range(3):
        if not door.keeps_values:
            weights = weights[:, :1].repeat(num_replicas, axis=1)
        expected_means.append(elements.read().mean() / 16.0)
        weights[0] += 0.25 * np.arange(num_replicas)
        batches = [elements.read() / 16.0 for _ in range(4)]
        rate = 0.125 * (1.0 + np.arange(num_replicas))
        found, weights = stages.expected(weights, rate, batches)
        losses += found
        after.append(weights.copy())
    np.testing.assert_allclose(means, expected_means, rtol=1e-6)
    sent_losses, sent_weights = door.sent()
    shape = (-1,) if num_replicas == 1 else (-1, num_replicas)
    np.testing.assert_allclose(sent_losses, np.reshape(losses, shape), rtol=1e-5)
    found = np.stack(sent_weights, axis=1)
    np.testing.assert_allclose(found, np.reshape(after, found.shape), rtol=1e-5)
    for variable, value in zip(stages.weights, weights, strict=True):
        assert door.read(variable) == pytest.approx(value[0], rel=1e-5)


@in_few_ways
def test_a_pipeline_after_a_loop_that_trains_the_same_weights(make_door):
    """Of two replicas of two IPUs each, though the loop needs one."""
    door = make_door(4)
    stages = Stages(door, averages=True)
    numbers = door.infeed(counting())

    def body(element):
        with ipu_shard(1):
            stages.weights[0].assign_add(0.125 * element)
        return []

    def function(x):
        loops.repeat(2, body, [], numbers)
        return x * 1.0, stages.pipeline(x, 4)

    door.compile(function, stages.losses)
    elements, batches, losses = Elements(2), Elements(2), []
    weights = np.array([[1.0, 1.0], [2.0, 2.0]])
    for _ in range(2):
        door.run(0.125)
        if not door.keeps_values:
            weights = weights[:, :1].repeat(2, axis=1)
        for _ in range(2):
            weights[0] += 0.125 * elements.read()
        given = [batches.read() / 16.0 for _ in range(4)]
        found, weights = stages.expected(weights, 0.125, given)
        losses += found
    np.testing.assert_allclose(door.sent(), [losses], rtol=1e-5)
    assert last_report().model.options.num_replicas == 2


# What is refused


def run_once(door, function):
    door.compile(function)
    door.run(1.0)


@before_anything_runs
def test_programs_with_other_replicas_than_the_function(make_door):
    door = make_door(4)
    stages = Stages(door, averages=True)

    def function(x):
        total = loops.repeat(2, lambda total: total + x, [x])
        trained = stages.pipeline(x, 4)
        with tf.control_dependencies([trained]):
            return cross_replica_sum(total)

    text = (
        "beside a loop of a fixed length or a pipeline has as many replicas as each of these.*"
        r"enter their scopes of `ipu_shard` before all of them\. Received: .* with 4, 'pipeline' "
        "with 2, in a function with 2 replicas"
    )
    with pytest.raises(NotImplementedError, match=text):
        run_once(door, function)


@before_anything_runs
def test_a_pipeline_after_replicas_of_one_ipu_did_something(make_door):
    door = make_door(4)
    stages = Stages(door, averages=True)

    def function(x):
        return cross_replica_sum(x), stages.pipeline(x, 4)

    door.compile(function, stages.losses)
    total, *_ = door.run(0.5)
    assert total == 1.0
    expected, _ = stages.expected(
        [np.ones(2), np.full(2, 2.0)], 0.5, np.arange(8).reshape(4, 2) / 16
    )
    np.testing.assert_allclose(np.asarray(door.sent()[0]).reshape(4, 2), expected, rtol=1e-5)


@before_anything_runs
def test_a_loop_that_not_all_replicas_reach(make_door):
    door = make_door(2)

    @tf.function
    def looping(x):
        return loops.repeat(2, lambda total: total + 1.0, [x])

    def function(x):
        own = x * index()
        return tf.cond(own > 0.5, lambda: looping(own), lambda: own)

    text = "or a program of all replicas hangs an IPU when it is in a loop or a branch that not all"
    with pytest.raises(ValueError, match=text):
        run_once(door, function)


def test_arrays_are_arguments_of_replicas_as_tensors_are():
    configure(2)
    step = tf.function(lambda x, scale: cross_replica_sum(x * scale))
    found = IPUStrategy().run(step, [np.float32([1.0, 2.0])], {"scale": np.float32(3.0)})
    np.testing.assert_array_equal(found, [6.0, 12.0])


def test_collectives_that_nothing_needs():
    """TensorFlow looks for their kernels before it leaves them out."""
    configure(2)

    @tf.function
    def called(x):
        cross_replica_sum(x)
        return x + 1.0

    @tf.function
    def function(x):
        cross_replica_sum(x)
        return tf.while_loop(lambda k, _: k < 2, lambda k, y: (k + 1, called(y)), (0, x))[1]

    np.testing.assert_array_equal(IPUStrategy().run(function, [tf.constant([1.0])]), [3.0])

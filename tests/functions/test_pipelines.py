"""Pipelines of functions equal the accumulation of gradients, computed with NumPy."""

import itertools
import re
from dataclasses import dataclass

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import last_report
from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.device import device_for
from ipu_keras.ipu_compiler import compile as compile_computation
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops.cross_replica_ops import cross_replica_sum
from ipu_keras.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipu_keras.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    RecomputationMode,
    pipeline,
)
from ipu_keras.scopes import ipu_scope
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod

# How they begin op by op is tested in `test_begun_op_by_op.py`.
pytestmark = pytest.mark.usefixtures("xla_from_the_start")

v1 = tf.compat.v1
WIDTH, BATCH = 3, 4
GROUPED, INTERLEAVED, SEQUENTIAL = (
    PipelineSchedule.Grouped,
    PipelineSchedule.Interleaved,
    PipelineSchedule.Sequential,
)


@pytest.fixture(autouse=True, scope="module")
def _reset_afterwards():
    yield
    reset_ipu_configuration()


def configure(num_ipus):
    reset_ipu_configuration()
    config = IPUConfig()
    config.auto_select_ipus = num_ipus
    config.configure_ipu_system()


def data(num_batches):
    random = np.random.default_rng(1)
    return [random.standard_normal((num_batches, BATCH, WIDTH)).astype("float32") for _ in "xy"]


def weights(num_stages):
    random = np.random.default_rng(2)
    return random.standard_normal((num_stages, WIDTH, WIDTH)).astype("float32")


@dataclass
class Expected:
    """What momentum does with accumulated gradients of tanh layers and a squared error.

    Args:
        weights: Of the stages; a stage may use those of another.
        used: By stage, whose weights it uses.
    """

    weights: np.ndarray
    used: list

    def __post_init__(self):
        self.weights = self.weights.astype("float64")
        self.momentum = np.zeros_like(self.weights)
        self.losses = []

    def update(self, batches, rate, num_replicas):
        total = np.zeros_like(self.weights)
        for x, y in batches:
            values = [x]
            for stage in self.used:
                values.append(np.tanh(values[-1] @ self.weights[stage]))
            error = values[-1] - y
            self.losses.append((error**2).mean())
            gradient = 2 * error / error.size
            for stage, before, after in zip(
                self.used[::-1], values[-2::-1], values[:0:-1], strict=True
            ):
                gradient = gradient * (1 - after**2)
                total[stage] += before.T @ gradient
                gradient = gradient @ self.weights[stage].T
        self.momentum = 0.9 * self.momentum + total / num_replicas
        self.weights = self.weights - rate * self.momentum


class Training:
    """A pipeline of tanh layers in a session, with a learning rate that is fed."""

    def __init__(self, num_stages, count, used=None, averages=False, **options):
        self.used = used or list(range(num_stages))
        x, y = data(64)
        self.infeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices((x, y)).repeat())
        self.outfeed = IPUOutfeedQueue()
        initial = weights(num_stages)

        def stage(number):
            def run(rate, h, y):
                with v1.variable_scope("", reuse=v1.AUTO_REUSE, use_resource=True):
                    own = self.used[number]
                    weight = v1.get_variable(f"w{own}", initializer=initial[own])
                h = tf.tanh(h @ weight)
                if number < num_stages - 1:
                    return rate * 1.0, h, y
                return rate, tf.reduce_mean((h - y) ** 2)

            return run

        def optimizer(rate, loss):
            made = v1.train.MomentumOptimizer(rate, 0.9)
            return OptimizerFunctionOutput(CrossReplicaOptimizer(made) if averages else made, loss)

        def model(rate):
            return pipeline(
                [stage(number) for number in range(num_stages)],
                count,
                inputs=[rate],
                infeed_queue=self.infeed,
                outfeed_queue=self.outfeed,
                optimizer_function=optimizer,
                **{"outfeed_loss": True, **options},
            )

        self.rate = v1.placeholder(tf.float32, [])
        with ipu_scope("/device:IPU:0"):
            self.run = compile_computation(model, [self.rate])
        self.dequeued = self.outfeed.dequeue()
        self.initializers = [v1.global_variables_initializer(), self.infeed.initializer]


CASES = [
    pytest.param(2, 4, GROUPED, None, None, 1, id="2 stages"),
    pytest.param(5, 10, GROUPED, None, [0, 1, 2, 3, 0], 1, id="5 stages on 4 IPUs"),
    pytest.param(3, 6, GROUPED, [0, 1, 0], [0, 1, 0], 1, id="shared weights"),
    pytest.param(3, 3, INTERLEAVED, None, None, 1, id="interleaved"),
    pytest.param(4, 5, SEQUENTIAL, None, None, 1, id="sequential"),
    pytest.param(2, 4, GROUPED, None, None, 2, id="2 replicas"),
    pytest.param(2, 4, SEQUENTIAL, [0, 0], [0, 0], 4, id="4 replicas that share weights"),
]


@pytest.mark.parametrize(("num_stages", "count", "schedule", "used", "mapping", "replicas"), CASES)
def test_training_equals_accumulation(num_stages, count, schedule, used, mapping, replicas):
    ipus = 1 << max(mapping or [num_stages - 1]).bit_length()
    configure(ipus * replicas)
    with tf.Graph().as_default():
        training = Training(
            num_stages,
            count,
            used,
            averages=replicas > 1,
            pipeline_schedule=schedule,
            device_mapping=mapping,
            repeat_count=2,
        )
        expected = Expected(weights(num_stages), training.used)
        batches = itertools.cycle(zip(*data(64), strict=True))
        with v1.Session() as session:
            session.run(training.initializers)
            for rate in (0.1, 0.3):
                session.run(training.run, {training.rate: rate})
                for _ in range(2):
                    expected.update(itertools.islice(batches, count * replicas), rate, replicas)
            losses = session.run(training.dequeued)
            trained = session.run(v1.trainable_variables())
    assert losses.shape == ((4 * count,) if replicas == 1 else (4 * count, replicas))
    np.testing.assert_allclose(losses.reshape(-1), expected.losses, rtol=1e-5)
    for value, number in zip(trained, sorted(set(training.used)), strict=True):
        np.testing.assert_allclose(value, expected.weights[number], rtol=1e-5, atol=1e-6)
    engine = device_for(0).engine
    assert engine.loaded.program.pipeline.num_stages == num_stages
    assert engine.loaded.program.repeat_count == 2 * count


@pytest.mark.parametrize("method", ["MEAN", GradientAccumulationReductionMethod.RUNNING_MEAN])
def test_means_of_gradients(method):
    configure(2)
    with tf.Graph().as_default():
        training = Training(2, 4, reduction_method=method)
        expected = Expected(weights(2), [0, 1])
        with v1.Session() as session:
            session.run(training.initializers)
            session.run(training.run, {training.rate: 0.3})
            trained = session.run(v1.trainable_variables())
    # The sum of four gradients, as Expected has it, by four.
    expected.update(itertools.islice(zip(*data(64), strict=True), 4), 0.3, 4)
    np.testing.assert_allclose(trained, expected.weights, rtol=1e-5, atol=1e-6)


def test_a_learning_rate_that_changes_compiles_nothing_again():
    configure(2)
    with tf.Graph().as_default():
        training = Training(2, 4, name="changing")
        before = device_for(0).engine.counters().num_compilations.get("changing", 0)
        with v1.Session() as session:
            session.run(training.initializers)
            for rate in np.linspace(0.0, 0.1, 5):
                session.run(training.run, {training.rate: rate})
    counters = device_for(0).engine.counters()
    assert counters.num_compilations["changing"] - before == 1
    assert counters.num_executions["changing"] % 5 == 0


@pytest.mark.parametrize("dtype", [None, tf.float16, lambda tensor: tf.float64])
def test_sums_of_what_is_sent(dtype):
    configure(2)
    with tf.Graph().as_default():
        training = Training(
            2, 4, accumulate_outfeed=True, accumulate_outfeed_dtype=dtype, repeat_count=3
        )
        with v1.Session() as session:
            session.run(training.initializers)
            session.run(training.run, {training.rate: 0.0})
            sums = session.run(training.dequeued)
    losses = Expected(weights(2), [0, 1])
    losses.update(zip(*data(64), strict=True), 0.0, 1)
    assert sums.dtype == {None: "float32", tf.float16: "float16"}.get(dtype, "float64")
    expected = np.reshape(losses.losses[:12], (3, 4)).sum(axis=1)
    np.testing.assert_allclose(sums, expected, rtol=2e-3 if dtype == tf.float16 else 1e-5)


def test_masked_results_are_not_sent():
    configure(2)
    with tf.Graph().as_default():
        training = Training(2, 4, outfeed_loss=False, outfeed_mask=[True, False])
        with v1.Session() as session:
            session.run(training.initializers)
            session.run(training.run, {training.rate: 0.5})
            (losses,) = session.run(training.dequeued)
    assert losses.shape == (4,)
    assert losses.min() > 0.0


def test_gradients_are_accumulated_in_the_type_that_was_asked_for():
    """In half precision, 2048 + 1 is 2048: of three gradients the last two are lost."""
    configure(1)
    numbers = np.float32([2048.0, 1.0, 1.0, 0.0])

    def trained(dtype):
        with tf.Graph().as_default():
            infeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(numbers))

            def first(x):
                return x * v1.get_variable("w", initializer=1.0, use_resource=True)

            def optimizer(loss):
                return OptimizerFunctionOutput(Descent(), loss)

            with ipu_scope("/device:IPU:0"):
                run = compile_computation(
                    lambda: pipeline(
                        [first, lambda x: x],
                        4,
                        dtype,
                        infeed_queue=infeed,
                        outfeed_queue=IPUOutfeedQueue(),
                        optimizer_function=optimizer,
                        device_mapping=[0, 0],
                    )
                )
            with v1.Session() as session:
                session.run([v1.global_variables_initializer(), infeed.initializer])
                session.run(run)
                return session.run(v1.trainable_variables()[0])

    assert trained(tf.float16) == 1.0 - 2048.0
    assert trained(None) == 1.0 - 2050.0


class Descent(v1.train.GradientDescentOptimizer):
    """Gradient descent that takes gradients of any type."""

    def __init__(self):
        super().__init__(1.0)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        pairs = [(tf.cast(gradient, v.dtype), v) for gradient, v in grads_and_vars]
        return super().apply_gradients(pairs, global_step, name)


@pytest.mark.parametrize("schedule", [GROUPED, SEQUENTIAL])
@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_that_exchange_nothing_train_weights_of_their_own(replicas, schedule):
    """Each is what NumPy makes of its elements alone, and goes on from there in the next run."""
    num_stages, count, repeat_count, rate = 2, 4, 3, 0.2
    configure(num_stages * replicas)
    infeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(tuple(data(64))).repeat())
    assert infeed.initializer is None
    outfeed = IPUOutfeedQueue()
    strategy = IPUStrategy()
    with strategy.scope():
        variables = [tf.Variable(each) for each in weights(num_stages)]
    optimizer = v1.train.MomentumOptimizer(rate, 0.9)

    def first(h, y):
        return tf.tanh(h @ variables[0]), y

    def second(h, y):
        return tf.reduce_mean((tf.tanh(h @ variables[1]) - y) ** 2)

    @tf.function
    def run():
        pipeline(
            [first, second],
            count,
            repeat_count=repeat_count,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
            outfeed_loss=True,
            pipeline_schedule=schedule,
        )

    for _ in range(2):
        strategy.run(run)
    losses = np.asarray(outfeed.dequeue())
    alone = [Expected(weights(num_stages), [0, 1]) for _ in range(replicas)]
    for number, one in enumerate(alone):
        batches = itertools.cycle(zip(*data(64), strict=True))
        own = itertools.islice(batches, number, None, replicas)
        for _ in range(2 * repeat_count):
            one.update(itertools.islice(own, count), rate, 1)
    expected = np.stack([one.losses for one in alone], axis=1)
    assert losses.shape == (2 * repeat_count * count, replicas)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    # What the host reads is what replica 0 has; the others have something else by now.
    for value, weight in zip(variables, alone[0].weights, strict=True):
        np.testing.assert_allclose(value, weight, rtol=1e-5, atol=1e-6)
    assert np.abs(alone[1].weights - alone[0].weights).max() > 1e-2


@pytest.mark.parametrize(
    "name", ["replicated_optimizer_state_sharding", "replicated_weight_sharding"]
)
def test_replicas_that_exchange_nothing_share_no_parts(name):
    configure(4)
    with tf.Graph().as_default():
        text = f"With `{name}` each replica has a part of variables that are the same in all"
        with pytest.raises(ValueError, match=text):
            Training(2, 4, offload_weight_update_variables=True, **{name: True})


def test_replicas_that_exchange_nothing_cost_no_sums():
    families = {}
    for averages in (True, False):
        configure(4)
        with tf.Graph().as_default():
            training = Training(2, 4, averages=averages)
            with v1.Session() as session:
                session.run(training.initializers)
                session.run(training.run, {training.rate: 0.1})
        report = last_report()
        assert (report.model.options.num_replicas, report.model.options.own_updates) == (
            2,
            not averages,
        )
        families[averages] = {row.family for row in report.rows}
    assert families[True] - families[False] == {"collective"}


def test_replicas_that_exchange_values_train_weights_of_their_own_too():
    """Losses are divided by what all of them have; gradients are those of each."""
    configure(4)
    infeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(np.float32([*range(1, 9)])).repeat())
    assert infeed.initializer is None
    outfeed = IPUOutfeedQueue()
    strategy = IPUStrategy()
    with strategy.scope():
        weight = tf.Variable(1.0)

    @tf.function
    def run():
        pipeline(
            [lambda x: (x, cross_replica_sum(x)), lambda x, total: weight * x / total],
            4,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=optimizer_of,
            outfeed_loss=True,
        )

    for _ in range(2):
        strategy.run(run)
    x = np.arange(1.0, 9.0).reshape(4, 2)
    shares = x / x.sum(axis=1, keepdims=True)
    own = 1 - 0.1 * shares.sum(axis=0)
    np.testing.assert_allclose(outfeed.dequeue(), [*shares, *own * shares], rtol=1e-6)
    np.testing.assert_allclose(weight, own[0] - 0.1 * shares[:, 0].sum(), rtol=1e-6)


def test_inference_in_a_function():
    configure(4)
    infeed = IPUInfeedQueue(tf.data.Dataset.range(24).map(lambda k: {"x": tf.cast(k, tf.float32)}))
    outfeed = IPUOutfeedQueue()
    assert infeed.initializer is None

    @tf.function
    def run(offset):
        stages = [lambda offset, x: (x + offset, x), lambda a, b: {"sum": a + b}["sum"]]
        pipeline(
            stages,
            2,
            repeat_count=3,
            inputs=[offset],
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            recomputation_mode=RecomputationMode.Auto,
        )

    IPUStrategy().run(run, [tf.constant(0.5)])
    (sums,) = outfeed.dequeue()
    # Two replicas of two IPUs: elements take turns.
    assert sums.shape == (6, 2)
    np.testing.assert_array_equal(np.reshape(sums, -1), 2 * np.arange(12) + 0.5)
    assert last_report().model.options.num_replicas == 2


def two(**options):
    """A pipeline of two stages that does nothing, with options."""
    stages = options.pop("stages", [lambda: None, lambda: None])
    return pipeline(stages, **{"gradient_accumulation_count": 4, **options})


def variable():
    return v1.get_variable("w", initializer=1.0, use_resource=True)


def optimizer_of(loss):
    return OptimizerFunctionOutput(v1.train.GradientDescentOptimizer(0.1), loss)


SHARED = {"device_mapping": [0, 0], "pipeline_schedule": INTERLEAVED}
ERRORS = {
    "no count": ({"gradient_accumulation_count": None}, ValueError, "must be specified"),
    "negative count": ({"gradient_accumulation_count": -1}, ValueError, "must be >= 0"),
    "one stage": ({"stages": [print]}, ValueError, "Pipeline requires at least two computational"),
    "no list": ({"stages": print}, TypeError, "computational_stages argument needs to be a list"),
    "mapping": ({"device_mapping": 1}, TypeError, "needs to be a list or a tuple"),
    "mappings": ({"device_mapping": [0]}, ValueError, "must be mapped to an IPU: 1 mappings != 2"),
    "no integer": ({"device_mapping": [0, "1"]}, ValueError, "to be a list of integers"),
    "schedule": ({"pipeline_schedule": "Grouped"}, TypeError, "`pipeline_schedule` must be a"),
    "interleaved": (
        dict(**SHARED, optimizer_function=optimizer_of),
        NotImplementedError,
        "The pipelining schedule 'Interleaved' does not currently support",
    ),
    "serial": (
        {"batch_serialization_iterations": 2},
        NotImplementedError,
        "Batch serialization is only supported with the `Sequential`",
    ),
    "serial on two": (
        {"batch_serialization_iterations": 2, "pipeline_schedule": SEQUENTIAL},
        NotImplementedError,
        "When using batch serialization, all computational stages",
    ),
    "continuous": (
        {"continuous_weight_updates": True},
        NotImplementedError,
        "Continuous weight updates are currently not supported.",
    ),
    "sharded state": (
        {"replicated_optimizer_state_sharding": True, "offload_weight_update_variables": False},
        ValueError,
        "optimizer state must be offloaded by using",
    ),
    "mask": ({"outfeed_mask": [True]}, ValueError, "must be provided when outfeed_mask is set"),
    "mask and loss": (
        {"outfeed_mask": [True], "outfeed_loss": True, "optimizer_function": optimizer_of},
        ValueError,
        "Only one of `outfeed_loss` and `outfeed_mask`",
    ),
    "loss": (
        {"outfeed_loss": True, "optimizer_function": optimizer_of},
        ValueError,
        "outfeed_queue must be provided when outfeed_loss is True",
    ),
    "no outfeed": (
        {"stages": [lambda: tf.constant(1.0), lambda x: x]},
        ValueError,
        "last computational stage has tensor outputs: .* but no outfeed_queue",
    ),
    "arguments": (
        {"stages": [lambda: tf.constant(1.0), lambda: None]},
        TypeError,
        "Supplied pipeline stage function cannot be called with the specified inputs",
    ),
    "optimizer function": (
        {
            "stages": [lambda: tf.constant(1.0), lambda x: x],
            "optimizer_function": lambda loss: loss,
            "outfeed_queue": IPUOutfeedQueue(),
        },
        TypeError,
        "needs to return an instance of OptimizerFunctionOutput",
    ),
    "no outfeed in training": (
        {
            "stages": [lambda: tf.constant(1.0), lambda x: x],
            "optimizer_function": optimizer_of,
        },
        ValueError,
        "last computational stage has tensor outputs: .* but no outfeed_queue",
    ),
    "mask of a dict": (
        {
            "stages": [lambda: tf.constant(1.0), lambda x: {"loss": x}],
            "optimizer_function": lambda loss: optimizer_of(loss * variable()),
            "outfeed_queue": IPUOutfeedQueue(),
            "outfeed_mask": [True],
        },
        ValueError,
        r"`outfeed_mask` is for results of the last stage that are in a list",
    ),
    "repeats": ({"repeat_count": 0}, ValueError, "`repeat_count` must be a positive integer"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_while_tracing(name):
    options, error, text = ERRORS[name]
    configure(2)
    with tf.Graph().as_default(), ipu_scope("/device:IPU:0"), pytest.raises(error, match=text):
        compile_computation(lambda: two(**options))


def test_what_is_accumulated_needs_an_outfeed():
    with (
        tf.Graph().as_default(),
        ipu_scope("/device:IPU:0"),
        pytest.raises(ValueError, match="must be provided when accumulate_outfeed is True"),
    ):
        compile_computation(lambda: two(accumulate_outfeed=True))


def test_outfeed_that_keeps_the_last_accumulates_nothing():
    queue = IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST)
    with (
        tf.Graph().as_default(),
        ipu_scope("/device:IPU:0"),
        pytest.raises(ValueError, match="it must be in IPUOutfeedMode ALL"),
    ):
        compile_computation(lambda: two(accumulate_outfeed=True, outfeed_queue=queue))


def test_a_tensor_that_is_not_passed():
    with tf.Graph().as_default(), ipu_scope("/device:IPU:0"):
        outside = v1.placeholder(tf.float32, [], name="outside")

        def model(x):
            return pipeline(
                [lambda: outside + 0.0, lambda y: y], 4, outfeed_queue=IPUOutfeedQueue()
            )

        with pytest.raises(ValueError, match=r"Trying to capture the tensor .*outside"):
            compile_computation(model, [outside])


def test_a_pipeline_within_a_loop():
    with (
        tf.Graph().as_default(),
        ipu_scope("/device:IPU:0"),
        pytest.raises(RuntimeError, match="not within a loop"),
    ):
        compile_computation(
            lambda: tf.while_loop(lambda k: k < 2, lambda k: (two(), k + 1)[1:], [tf.constant(0)])
        )


@pytest.mark.parametrize(("schedule", "count", "step"), [(GROUPED, 3, 2), (INTERLEAVED, 3, 2)])
def test_depth_is_checked_when_it_runs(schedule, count, step):
    configure(2)
    text = f"The pipeline depth of the pipeline must be a multiple of {step}, but it is {count}"
    infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors(1.0).repeat())

    @tf.function
    def run():
        pipeline(
            [lambda x: x, lambda x: None], count, infeed_queue=infeed, pipeline_schedule=schedule
        )

    with pytest.raises(tf.errors.FailedPreconditionError, match=text):
        IPUStrategy().run(run)


@pytest.mark.parametrize("mapping", [None, [0, 1, 0]])
def test_a_variable_that_stages_share_is_on_one_ipu(mapping):
    configure(4)
    shared = tf.Variable(2.0, name="shared")
    outfeed = IPUOutfeedQueue()

    @tf.function
    def run():
        stages = [lambda x: x * shared, lambda x: x, lambda x: x * shared]
        pipeline(stages, 3, inputs=[1.0], outfeed_queue=outfeed, device_mapping=mapping)

    if mapping is None:
        text = (
            "The variable shared:0 is used in pipeline stages 0 and 2, which are on the IPUs 0 and "
            "2, but an input can only be used by pipeline stages on the same IPU. Map these stages "
            "to one IPU using the `device_mapping` argument of `pipeline`."
        )
        with pytest.raises(tf.errors.UnimplementedError, match=re.escape(text)):
            IPUStrategy().run(run)
    else:
        IPUStrategy().run(run)
        np.testing.assert_array_equal(outfeed.dequeue(), [np.full((3, 2), 4.0)])


def test_too_few_ipus():
    """Which is said when a session runs it: until then more may be configured."""
    configure(1)
    with tf.Graph().as_default(), ipu_scope("/device:IPU:0"):
        run = compile_computation(two)
        text = r"Current device has 1 IPUs attached, .* multiple of 2"
        with v1.Session() as session, pytest.raises(ValueError, match=text):
            session.run(run)


@pytest.mark.parametrize("mode", IPUOutfeedMode)
@pytest.mark.parametrize("configured", [0, 1, 2])
def test_the_system_may_be_configured_after_compilation(mode, configured):
    """For one replica, and for two: what was dequeued before is of these."""
    reset_ipu_configuration()
    if configured:
        configure(configured)
    for num_replicas in (1, 2):
        with tf.Graph().as_default():
            infeed = IPUInfeedQueue(tf.data.Dataset.range(8).map(lambda k: tf.cast(k, tf.float32)))
            queue = IPUOutfeedQueue(outfeed_mode=mode)
            stages = [lambda x: x + 1.0, lambda x: x * variable()]
            with ipu_scope("/device:IPU:0"):
                run = compile_computation(
                    lambda stages=stages, infeed=infeed, queue=queue: pipeline(
                        stages, 4, infeed_queue=infeed, outfeed_queue=queue
                    )
                )
            dequeued = queue.dequeue()
            configure(2 * num_replicas)
            with v1.Session() as session:
                session.run([v1.global_variables_initializer(), infeed.initializer])
                session.run(run)
                (found,) = session.run(dequeued)
        expected = np.arange(1.0, 4 * num_replicas + 1)
        if num_replicas > 1:
            expected = expected.reshape(4, num_replicas)
        np.testing.assert_array_equal(
            found, expected[-1] if mode is IPUOutfeedMode.LAST else expected
        )


def test_the_last_stage_returns_a_dict():
    configure(2)
    with tf.Graph().as_default():
        queue = IPUOutfeedQueue()

        def optimizer(*, loss, x):
            return optimizer_of(loss + 0.0 * x)

        stages = [lambda x: {"x": x, "y": 3.0}, lambda *, x, y: {"loss": y * variable(), "x": x}]
        with ipu_scope("/device:IPU:0"):
            run = compile_computation(
                lambda: pipeline(
                    stages, 4, inputs=[2.0], outfeed_queue=queue, optimizer_function=optimizer
                )
            )
        dequeued = queue.dequeue()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(run)
            found = session.run(dequeued)
            (weight,) = session.run(v1.trainable_variables())
    assert {name: values.tolist() for name, values in found.items()} == {
        "loss": [3.0] * 4,
        "x": [2.0] * 4,
    }
    np.testing.assert_allclose(weight, 1.0 - 0.1 * 4 * 3.0, rtol=1e-6)


class Sending(v1.train.GradientDescentOptimizer):
    """Sends the gradient that it gets."""

    def __init__(self, queue):
        super().__init__(0.01)
        self.queue = queue

    def apply_gradients(self, pairs, *args, **options):
        sent = self.queue.enqueue({"gradient": pairs[0][0], "one": tf.constant(1)})
        return tf.group(sent, super().apply_gradients(pairs, *args, **options))


def sending(queue, averages=True, **options):
    def optimizer(loss):
        made = Sending(queue)
        return OptimizerFunctionOutput(CrossReplicaOptimizer(made) if averages else made, loss)

    return compile_computation(
        lambda: pipeline(
            [lambda x: x * variable(), lambda x: x * 2.0],
            4,
            repeat_count=3,
            inputs=[1.0],
            outfeed_queue=IPUOutfeedQueue(),
            optimizer_function=optimizer,
        )
    )


@pytest.mark.parametrize("mode", IPUOutfeedMode)
@pytest.mark.parametrize("num_replicas", [1, 2])
def test_what_an_update_sends_is_sent_once_an_update(mode, num_replicas):
    configure(2 * num_replicas)
    with tf.Graph().as_default(), ipu_scope("/device:IPU:0"):
        queue = IPUOutfeedQueue(outfeed_mode=mode)
        run, dequeued = sending(queue), queue.dequeue()
        assert [variable.name for variable in v1.global_variables()] == ["w:0"]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(2):
                session.run(run)
            found = session.run(dequeued)
    # The sum of four gradients of 2.
    expected = np.full((6, num_replicas) if num_replicas > 1 else 6, 8.0)
    expected = expected[-1] if mode is IPUOutfeedMode.LAST else expected
    np.testing.assert_array_equal(found["gradient"], expected)
    np.testing.assert_array_equal(found["one"], np.ones_like(expected))


def test_replicas_with_updates_of_their_own_send_none():
    configure(4)
    text = "What a weight update sends is the same for all replicas"
    with (
        tf.Graph().as_default(),
        ipu_scope("/device:IPU:0"),
        pytest.raises(NotImplementedError, match=text),
    ):
        sending(IPUOutfeedQueue(), averages=False)


def test_sharded_state_is_offloaded_if_that_is_left_open():
    configure(2)

    @tf.function
    def run():
        pipeline([lambda: None, lambda: None], 4, replicated_optimizer_state_sharding=True)

    IPUStrategy().run(run)
    layout = device_for(0).engine.loaded.program.pipeline
    assert (layout.offload_weight_update_variables, layout.replicated_optimizer_state_sharding) == (
        True,
        True,
    )


def test_names_of_feeds_need_not_be_names_of_operations():
    configure(2)
    with pytest.warns(DeprecationWarning, match="`feed_name`"):
        queue = IPUOutfeedQueue("__feed 13")
    with tf.Graph().as_default(), ipu_scope("/device:IPU:0"):
        run = compile_computation(
            lambda: pipeline([lambda x: x, lambda x: x], 4, inputs=[1.0], outfeed_queue=queue)
        )
        dequeued = queue.dequeue()
        with v1.Session() as session:
            session.run(run)
            assert session.run(dequeued)[0].tolist() == [1.0] * 4


def test_results_of_a_last_stage_keep_their_structure():
    """And what one stage gives another; nothing is stacked, of equal shapes or not."""
    configure(2)
    with tf.Graph().as_default(), v1.Session() as session:
        infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors(np.float32(2)).repeat())
        outfeed = IPUOutfeedQueue()

        def first(x):
            return [x, x + 1], {"halved": x / 2}

        def last(pair, named):
            one, two = pair
            return {"pair": [one, two], "rows": (tf.fill([2], named["halved"]), one * two)}

        with ipu_scope("/device:IPU:0"):
            compiled = compile_computation(
                lambda: pipeline([first, last], 4, infeed_queue=infeed, outfeed_queue=outfeed)
            )
        dequeued = outfeed.dequeue()
        session.run(infeed.initializer)
        session.run(compiled)
        found = session.run(dequeued)
    assert [each.tolist() for each in found["pair"]] == [[2.0] * 4, [3.0] * 4]
    assert [each.tolist() for each in found["rows"]] == [[[1.0, 1.0]] * 4, [6.0] * 4]

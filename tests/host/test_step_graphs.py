"""Each way to run accumulated and replicated steps, against Python."""

import dataclasses
import itertools
import os

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER, device_for
from ipu_keras.host import host_program as host
from ipu_keras.host.plan import HostExecution, plan_host
from ipu_keras.host.replicas.replica_variables import ReplicaVariables
from ipu_keras.host.step_graphs import StepGraphs
from ipu_keras.host.step_loops import Reduction
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.cross_replica_ops import cross_replica_sum
from ipu_keras.program import Accumulation, OutfeedMode, Program
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod as Method
from ipu_keras.tracing import graph_of

NUM_STEPS = 6
WAYS = [*itertools.product((1, 2, 3), (1, 2))]


@pytest.fixture(scope="module", autouse=True)
def device():
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    yield device_for(0)
    SYSTEM.reset()


@pytest.mark.parametrize(
    ("method", "expected"),
    # Two steps of two replicas, with the gradients 1 and 2, then 3 and 4.
    [(Method.SUM, 10.0), (Method.MEAN, 1.5 + 3.5), (Method.RUNNING_MEAN, 3 / 2 + 7 / 2)],
)
def test_reductions(method, expected):
    reduction = Reduction(method, num_steps=2, num_replicas=2)
    accumulated = tf.constant(0.0)
    for index, gradient in enumerate([1.0, 2.0, 3.0, 4.0]):
        accumulated = reduction.add(accumulated, tf.constant(gradient), index)
    assert float(accumulated) == expected


def test_running_means_stay_in_range():
    """The sum of 32 gradients of 60000 is more than float16 has."""
    reduction = Reduction(Method.RUNNING_MEAN, num_steps=32)
    accumulated = tf.constant(0.0, tf.float16)
    for index in range(32):
        accumulated = reduction.add(accumulated, tf.constant(60000.0, tf.float16), index)
    np.testing.assert_allclose(accumulated, 60000.0, rtol=1e-2)


class Linear:
    """A weight that is trained, and a total that every replica has of its own."""

    def __init__(self, device, *, exchanges):
        with tf.device(device.name):
            self.weight = tf.Variable([[1.0], [2.0]])
            self.total = tf.Variable(0.0)
        self._exchanges = exchanges

    def step(self, element):
        (x,) = element
        outputs = x @ self.weight
        seen = tf.reduce_sum(outputs)
        self.total.assign_add(cross_replica_sum(seen) if self._exchanges else seen)
        return {"total": self.total.read_value()}, [tf.transpose(x) @ tf.ones_like(outputs)]

    def update(self, gradients):
        self.weight.assign_sub(0.01 * gradients[0])


def program_of(model, num_replicas, count, mode, method=Method.SUM):
    return Program(
        name="linear",
        step=model.step,
        infeed=(TensorSpec((3, 2), "float32"),),
        unflatten=tuple,
        repeat_count=NUM_STEPS,
        outfeed_mode=mode,
        update=model.update,
        accumulation=Accumulation(count=count, reduction=method),
        num_replicas=num_replicas,
    )


def run(program, execution, device, batches):
    step = host.trace(program, for_xla=execution.is_compiled)
    plan = plan_host(program, graph_of(step.function))
    plan = dataclasses.replace(plan, executions=(execution,))
    callable = host.HostCallable(plan, step, device)
    return [callable([tf.constant(batches)]) for _ in range(2)]


def simulated(batches, num_replicas, count, exchanges):
    """The weight after two executions, and the totals of each step and replica of the second."""
    weight, totals = np.float64([[1], [2]]), np.zeros(num_replicas)
    for _ in range(2):
        seen, gradient = [], 0
        for step, together in enumerate(batches.reshape(NUM_STEPS, num_replicas, 3, 2)):
            sums = np.array([(x @ weight).sum() for x in together])
            totals = totals + (sums.sum() if exchanges else sums)
            seen.append(totals)
            gradient = gradient + sum(x.T @ np.ones((3, 1)) for x in together)
            if (step + 1) % count == 0:
                weight, gradient = weight - 0.01 * gradient, 0
    return weight, np.array(seen)


@pytest.mark.parametrize("exchanges", [False, True])
@pytest.mark.parametrize(("count", "num_replicas"), WAYS)
@pytest.mark.parametrize("execution", HostExecution)
def test_every_way_to_run(device, execution, count, num_replicas, exchanges):
    generator = np.random.default_rng(0)
    batches = generator.normal(size=(NUM_STEPS * num_replicas, 3, 2)).astype("float32")
    weight, totals = simulated(batches, num_replicas, count, exchanges)
    model = Linear(device, exchanges=exchanges)
    program = program_of(model, num_replicas, count, OutfeedMode.ALL)
    _, results = run(program, execution, device, batches)
    np.testing.assert_allclose(results["total"], totals.ravel(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(model.weight, weight, rtol=1e-5)
    np.testing.assert_allclose(model.total, totals[-1, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_what_reaches_the_host(device, num_replicas):
    generator = np.random.default_rng(0)
    batches = generator.normal(size=(NUM_STEPS * num_replicas, 3, 2)).astype("float32")
    _, totals = simulated(batches, num_replicas, 3, False)
    for execution in HostExecution:
        model = Linear(device, exchanges=False)
        program = program_of(model, num_replicas, 3, OutfeedMode.LAST)
        _, results = run(program, execution, device, batches)
        np.testing.assert_allclose(results["total"], totals[-1, -1], rtol=1e-4)


OF_EACH = {
    OutfeedMode.ALL: lambda values: values.ravel(),
    OutfeedMode.LAST: lambda values: values[-1, -1],
    OutfeedMode.LAST_OF_EACH: lambda values: values[-1],
    OutfeedMode.SUM_OF_EACH: lambda values: values.sum(axis=0),
}


@pytest.mark.parametrize("exchanges", [False, True])
@pytest.mark.parametrize(("count", "num_replicas"), WAYS)
@pytest.mark.parametrize("execution", HostExecution)
def test_results_in_modes_of_their_own(device, execution, count, num_replicas, exchanges):
    generator = np.random.default_rng(0)
    batches = generator.normal(size=(NUM_STEPS * num_replicas, 3, 2)).astype("float32")
    _, totals = simulated(batches, num_replicas, count, exchanges)
    model = Linear(device, exchanges=exchanges)
    program = program_of(model, num_replicas, count, OutfeedMode.ALL)

    def step(element):
        results, gradients = model.step(element)
        return [results["total"]] * len(OF_EACH), gradients

    program = dataclasses.replace(program, step=step, outfeed_modes=tuple(OF_EACH))
    _, results = run(program, execution, device, batches)
    for expected, result in zip(OF_EACH.values(), results, strict=True):
        np.testing.assert_allclose(result, expected(totals), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("count", "num_replicas"), [(1, 1), (2, 2), (6, 1)])
@pytest.mark.parametrize("execution", HostExecution)
def test_what_updates_return(device, execution, count, num_replicas):
    batches = np.random.default_rng(0).normal(size=(NUM_STEPS * num_replicas, 3, 2))
    batches = batches.astype("float32")
    model = Linear(device, exchanges=False)

    def update(gradients):
        model.update(gradients)
        return [gradients[0]] * 3

    program = dataclasses.replace(
        program_of(model, num_replicas, count, OutfeedMode.LAST),
        update=update,
        update_modes=(OutfeedMode.ALL, OutfeedMode.LAST_OF_EACH, OutfeedMode.SUM_OF_EACH),
    )
    _, (results, (every, last, total)) = run(program, execution, device, batches)
    assert results["total"].shape == ()
    expected = batches.sum(axis=1).reshape(NUM_STEPS // count, -1, 2).sum(axis=1)[..., None]
    np.testing.assert_allclose(every, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(last, expected[-1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(total, expected.sum(axis=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_replicas", [1, 2, 6])
@pytest.mark.parametrize("execution", HostExecution)
def test_results_in_modes_of_their_own_without_state(device, execution, num_replicas):
    # Of programs that write nothing, several batches are computed at once.
    batches = np.arange(NUM_STEPS * num_replicas * 6).reshape(-1, 3, 2).astype("float32")
    program = Program(
        name="square",
        step=lambda element: [tf.square(element[0])] * len(OF_EACH),
        infeed=(TensorSpec((3, 2), "float32"),),
        unflatten=tuple,
        repeat_count=NUM_STEPS,
        outfeed_modes=tuple(OF_EACH),
        num_replicas=num_replicas,
    )
    _, (every, last, last_of_each, sums) = run(program, execution, device, batches)
    squares = (batches**2).reshape(NUM_STEPS, num_replicas, 3, 2)
    np.testing.assert_array_equal(every, batches**2)
    np.testing.assert_array_equal(last, squares[-1, -1])
    np.testing.assert_array_equal(last_of_each, squares[-1])
    np.testing.assert_allclose(sums, squares.sum(axis=0), rtol=1e-6)


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("execution", HostExecution)
def test_gradients_of_wide_layers(device, execution, method):
    """They are products of matrices smaller than they are, so one product of all batches."""
    with tf.device(device.name):
        weight = tf.Variable(tf.zeros((6, 5)))
        total = tf.Variable(0.0)

    def step(element):
        (x,) = element
        total.assign_add(tf.reduce_sum(x))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(x @ weight - 1.0))
        return total.read_value(), [tape.gradient(loss, weight)]

    program = Program(
        name="wide",
        step=step,
        infeed=(TensorSpec((2, 6), "float32"),),
        unflatten=tuple,
        repeat_count=3,
        update=lambda gradients: weight.assign_sub(0.1 * gradients[0]),
        accumulation=Accumulation(count=3, reduction=method),
        num_replicas=2,
    )
    batches = np.random.default_rng(0).normal(size=(6, 2, 6)).astype(np.float32)
    expected = np.zeros((6, 5))
    for _ in range(2):
        gradient = sum(x.T @ (2 * (x @ expected - 1)) for x in np.float64(batches))
        expected -= 0.1 * (gradient if method is Method.SUM else gradient / 3)
    run(program, execution, device, batches)
    np.testing.assert_allclose(weight, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("execution", HostExecution)
def test_what_is_drawn_at_random_comes_first(device, execution, num_replicas):
    """A counter stands for the state of a generator; replicas count on their own."""
    with tf.device(device.name):
        state, total, weight = (tf.Variable(start) for start in (1.0, 0.0, 0.0))

    def step(element):
        (x,) = element
        drawn = state.read_value()
        state.assign_add(1.0)
        product = tf.squeeze(tf.matmul(x, x, transpose_b=True)) * drawn
        total.assign_add(product)
        return total.read_value(), [product]

    program = Program(
        name="draw",
        step=step,
        infeed=(TensorSpec((1, 2), "float32"),),
        unflatten=tuple,
        repeat_count=NUM_STEPS,
        outfeed_mode=OutfeedMode.ALL,
        update=lambda gradients: weight.assign_add(gradients[0]),
        accumulation=Accumulation(count=3),
        num_replicas=num_replicas,
    )
    batches = np.random.default_rng(0).normal(size=(NUM_STEPS * num_replicas, 1, 2))
    batches = batches.astype(np.float32)
    _, results = run(program, execution, device, batches)
    squares = np.square(np.float64(batches)).sum(axis=(1, 2)).reshape(NUM_STEPS, num_replicas)
    # The second execution goes on with the numbers, and totals, of the first.
    first, second = (squares * np.arange(start, start + NUM_STEPS)[:, None] for start in (1, 7))
    totals = first.sum(axis=0) + np.cumsum(second, axis=0)
    np.testing.assert_allclose(results, totals.ravel(), rtol=1e-5)
    np.testing.assert_allclose(weight, first.sum() + second.sum(), rtol=1e-5)
    assert float(state) == 1 + 2 * NUM_STEPS


@pytest.mark.parametrize("num_cores", [1, 8, None])
def test_steps_in_flight_are_as_many_as_cores_need(device, num_cores, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: num_cores)
    program = Program(
        name="batches",
        step=lambda element: tf.sort(element[0]),
        infeed=(TensorSpec((2,), "float32"),),
        unflatten=tuple,
        repeat_count=NUM_STEPS,
    )
    step = host.trace(program, for_xla=False)
    plan = plan_host(program, graph_of(step.function))
    variables = ReplicaVariables([step.function], 1, device)
    graphs = StepGraphs(
        plan, step.function, None, HostExecution.PARALLEL_LOOP, variables.captures_of
    )
    spec = tf.TensorSpec((NUM_STEPS, 2))
    concrete = tf.function(graphs, autograph=False).get_concrete_function(spec)
    [loop] = [op for op in concrete.graph.get_operations() if op.type.endswith("While")]
    assert loop.get_attr("parallel_iterations") == 2 * (num_cores or 1)


def test_gradients_wait_for_no_metrics(device):
    """The little that replicas do in turn is in one program with all else."""
    program = program_of(Linear(device, exchanges=False), 2, 3, OutfeedMode.LAST)
    step = host.trace(program, for_xla=True)
    plan = plan_host(program, graph_of(step.function))
    variables = ReplicaVariables([step.function], 2, device)
    graphs = StepGraphs(
        plan, step.function, step.update, HostExecution.COMPILED_LOOP, variables.captures_of
    )
    assert graphs.is_one_program


@pytest.mark.parametrize(("num_operations", "is_one_program"), [(1000, True), (1001, False)])
def test_what_replicas_do_in_turn_is_in_one_program_if_it_is_little(
    device, num_operations, is_one_program
):
    program = program_of(Linear(device, exchanges=False), 2, 3, OutfeedMode.LAST)
    step = host.trace(program, for_xla=True)
    sequential = frozenset(f"metric/{k}" for k in range(num_operations))
    plan = plan_host(program, graph_of(step.function))
    plan = dataclasses.replace(plan, sequential=sequential, opening=frozenset())
    variables = ReplicaVariables([step.function], 2, device)
    graphs = StepGraphs(
        plan, step.function, step.update, HostExecution.COMPILED_LOOP, variables.captures_of
    )
    assert graphs.is_one_program is is_one_program


def test_steps_whose_gradients_depend_on_what_they_write(device):
    """They run in turn: each gradient is the number of steps before."""
    with tf.device(device.name):
        count, weight = tf.Variable(0.0), tf.Variable(0.0)

    def step(element):
        before = count.read_value()
        with tf.control_dependencies([before]):
            count.assign_add(1.0)
        return before, [before + 0 * tf.reduce_sum(element[0])]

    def update(gradients):
        weight.assign_add(gradients[0])

    program = Program(
        name="count",
        step=step,
        infeed=(TensorSpec((1,), "float32"),),
        unflatten=tuple,
        repeat_count=4,
        update=update,
        accumulation=Accumulation(count=4),
        num_replicas=2,
    )
    for execution in HostExecution:
        count.assign(0.0)
        weight.assign(0.0)
        run(program, execution, device, np.zeros((8, 1), np.float32))
        # Two replicas, and 0 to 7 in two executions.
        assert float(weight.numpy()) == 2 * sum(range(8))


@pytest.mark.parametrize("execution", HostExecution)
@pytest.mark.parametrize(("mode", "exchanges"), [*itertools.product(OutfeedMode, (False, True))])
@pytest.mark.parametrize("num_replicas", [1, 2])
def test_steps_that_hand_tensors_on(device, num_replicas, mode, exchanges, execution):
    """Running sums and counts, which each replica begins with values of its own."""

    def step(element, handed):
        (x,), (total, count) = element, handed
        seen = cross_replica_sum(x) if exchanges and num_replicas > 1 else x
        return {"before": total}, [total + seen, count + 1]

    program = Program(
        name="sums",
        step=step,
        infeed=(TensorSpec((2,), "float32"),),
        unflatten=tuple,
        repeat_count=NUM_STEPS,
        outfeed_mode=mode,
        num_replicas=num_replicas,
        carried=(TensorSpec((2,), "float32"), TensorSpec((), "int32")),
    )
    traced = host.trace(program, for_xla=execution.is_compiled)
    plan = dataclasses.replace(
        plan_host(program, graph_of(traced.function)), executions=(execution,)
    )
    x = np.arange(2 * num_replicas * NUM_STEPS, dtype="float32").reshape(-1, 2)
    starts = [((0.5 + replica, 1.5 + replica), 7 + replica) for replica in range(num_replicas)]
    carried = [tf.constant(value) for start in starts for value in start]
    found, handed = host.HostCallable(plan, traced, device)([tf.constant(x), *carried])
    by_step = x.reshape(NUM_STEPS, num_replicas, 2)
    if exchanges:
        by_step = np.broadcast_to(by_step.sum(axis=1, keepdims=True), by_step.shape)
    first = np.float32([total for total, _ in starts])
    totals = np.cumsum([first, *by_step], axis=0)
    before = totals[:-1]
    expected = {
        OutfeedMode.ALL: before.reshape(-1, 2),
        OutfeedMode.LAST: before[-1, -1],
        OutfeedMode.LAST_OF_EACH: before[-1],
        OutfeedMode.SUM_OF_EACH: before.sum(axis=0),
    }[mode]
    np.testing.assert_array_equal(found["before"], expected)
    np.testing.assert_array_equal(handed[0::2], totals[-1])
    assert [int(count) for count in handed[1::2]] == [count + NUM_STEPS for _, count in starts]

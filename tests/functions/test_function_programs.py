"""Functions for `strategy.run` as programs: reports, verdicts, recompilations, and what runs."""

import gc
import json
import math
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import last_report
from ipu_keras.config import IPUConfig
from ipu_keras.cost.tile.exchange import host_seconds
from ipu_keras.device import device_for
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.cross_replica_ops import cross_replica_sum
from ipu_keras.tracing.lowering import LoweringError

ALWAYS = {"debug.allowOutOfMemory": "false"}


@pytest.fixture
def strategy():
    SYSTEM.reset()
    IPUConfig().configure_ipu_system()
    yield IPUStrategy()
    SYSTEM.reset()


@pytest.fixture
def options(monkeypatch, tmp_path):
    """Sets engine options; reports go to a folder that it returns."""

    def set_options(**values):
        values = {"autoReport.directory": str(tmp_path), **values}
        monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(values))
        return tmp_path

    return set_options


def train_step_of(strategy, units):
    """A custom train step, its variables, and its optimizer."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((units,)), keras.layers.Dense(units, name="wide")])
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return train_step, model, optimizer


# -- reports -------------------------------------------------------------------


def test_the_report_of_a_custom_train_step(strategy):
    train_step, _, _ = train_step_of(strategy, 32)
    executions = device_for(0).engine.counters().num_executions.get("train_step", 0)
    batch = tf.ones((8, 32)), tf.ones((8, 32))
    for _ in range(3):
        strategy.run(train_step, batch)
    report = last_report()
    assert (report.name, report.batch_size) == ("train_step", 8)
    # Forward and the gradient of the kernel; nobody needs that of the input.
    rows = [row for row in report.rows if row.family == "dot"]
    assert sum(row.flops for row in rows) == 2 * (2 * 8 * 32 * 32)
    assert [row.backward for row in rows] == [False, True]
    assert all("/wide" in row.layer for row in rows)
    assert device_for(0).engine.counters().num_executions["train_step"] == executions + 3
    # The weights, their momentum, and the counter and the learning rate of the optimizer.
    assert report.model.memory.bytes_by_category["variables"] == 2 * 4 * (32 * 32 + 32) + 8 + 4


def test_the_report_is_of_what_ran_last(strategy):
    @tf.function
    def first(x):
        return x + 1.0

    @tf.function
    def second(x):
        return x * 2.0

    for function in (first, second, first):
        strategy.run(function, [tf.ones(4)])
        assert last_report().name == function.__name__


def test_a_trace_of_the_users(strategy):
    function = tf.function(lambda x: tf.matmul(x, x)).get_concrete_function(tf.TensorSpec((4, 4)))
    strategy.run(function, [tf.ones((4, 4))])
    assert last_report().flops_per_step == 2 * 4 * 4 * 4


def test_variables_as_arguments(strategy):
    with strategy.scope():
        weight = tf.Variable(tf.eye(4))

    @tf.function
    def product(x, weight):
        return x @ weight

    assert strategy.run(product, [tf.ones((2, 4)), weight]).numpy().tolist() == [[1.0] * 4] * 2
    report = last_report()
    assert report.flops_per_step == 2 * 2 * 4 * 4
    assert report.model.memory.bytes_by_category["variables"] == 4 * 4 * 4


def test_gradients_of_loops_and_shapes_that_the_trace_leaves_open(strategy):
    """XLA takes neither, so the function is traced again for the model."""
    with strategy.scope():
        weight = tf.Variable(tf.eye(4))

    @tf.function(input_signature=[tf.TensorSpec((None, 4))])
    def step(x):
        with tf.GradientTape() as tape:
            for _ in range(tf.constant(3)):
                x = x @ weight
            loss = tf.reduce_sum(x)
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        return loss

    assert float(strategy.run(step, [tf.ones((2, 4))])) == 8.0
    report = last_report()
    assert report.batch_size == 2
    # Forward, and both gradients, in each of three turns.
    assert sum(r.flops for r in report.rows if r.family == "dot") == 3 * 3 * (2 * 2 * 4 * 4)


def test_a_loop_over_an_iterator(strategy):
    """The documented style of custom training: its batches come from an infeed."""
    with strategy.scope():
        weight = tf.Variable(tf.eye(4))

    @tf.function
    def loop(iterator):
        for _ in tf.range(8):
            x, scale = next(iterator)
            weight.assign_add(tf.cast(scale, tf.float32) * (x @ weight))
        return tf.reduce_sum(weight)

    dataset = tf.data.Dataset.from_tensors((tf.zeros((4, 4)), 2)).repeat()
    assert strategy.run(loop, [iter(dataset)]).numpy() == 4.0
    report = last_report()
    assert report.name == "loop"
    (product,) = [row for row in report.rows if row.family == "dot"]
    assert (product.repeat, product.flops) == (8, 8 * 2 * 4 * 4 * 4)
    infeeds = [row for row in report.rows if row.family == "stream copy"]
    assert [row.repeat for row in infeeds] == [8, 8]
    # Of 8 batches of 4 * 4 numbers and one integer, and the one number that is returned.
    target, steps = report.model.target, 8
    # A copy begins in each turn, for the result, and for the seed of random numbers.
    sizes = steps * (4 * 4 * 4 + 4), 4, 8
    seconds = sum(host_seconds(target, size, num_ipus=1) for size in sizes)
    begun = (steps - 1) * target.host_latency_cycles
    assert report.model.host_cycles == math.ceil(seconds * target.clock_hz + begun)


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_captured_iterator_is_an_infeed_too(strategy, in_loop):
    dataset = tf.data.Dataset.from_tensors((tf.ones((4, 4)), 2)).repeat()
    iterator, given = iter(dataset), iter(dataset)

    def total(source):
        result = 0.0
        for _ in tf.range(3) if in_loop else range(3):
            x, scale = next(source)
            result += tf.reduce_sum(x) * tf.cast(scale, tf.float32)
        return result

    assert strategy.run(tf.function(lambda: total(iterator))).numpy() == 3 * 16 * 2
    captured = last_report()
    assert next(iterator)[1].numpy() == 2  # what models it has not read it
    assert strategy.run(tf.function(total), [given]).numpy() == 3 * 16 * 2
    infeeds = [row.repeat for row in captured.rows if row.family == "stream copy"]
    assert infeeds == [3, 3] if in_loop else [1] * 6
    assert captured.compute_cycles == last_report().compute_cycles
    assert captured.model.host_cycles == last_report().model.host_cycles


def test_a_custom_loop_costs_what_fit_costs(strategy):
    """With random numbers, recurrence and moving averages, one step in a call or four."""
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [
                keras.Input((6, 8)),
                keras.layers.LSTM(16),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(4),
            ]
        )
        model.compile(keras.optimizers.Adam(), keras.losses.MeanSquaredError())
        model.optimizer.build(model.trainable_variables)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = keras.losses.MeanSquaredError()(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def four_steps(iterator):
        for _ in tf.range(4):
            loss = step(*next(iterator))
        return loss

    data = np.ones((16, 6, 8), np.float32), np.ones((16, 4), np.float32)
    strategy.run(step, data)
    alone = last_report()
    dataset = tf.data.Dataset.from_tensors(data).repeat()
    strategy.run(four_steps, [iter(dataset)])
    in_loop = last_report()
    model.train_on_batch(*data)
    fitted = last_report()
    assert (alone.name, in_loop.name, fitted.name) == (
        "step",
        "four_steps",
        f"{model.name}.train",
    )
    # `fit` has the mean of losses besides, the loop its counter.
    assert alone.flops_per_step == pytest.approx(fitted.flops_per_step, rel=1e-3)
    assert in_loop.flops_per_step == pytest.approx(4 * alone.flops_per_step, rel=1e-3)
    assert alone.cycles_per_step == pytest.approx(fitted.cycles_per_step, rel=0.02)
    ipu = [report.cycles_per_step - report.model.host_cycles for report in (alone, in_loop)]
    assert ipu[1] == pytest.approx(4 * ipu[0], rel=0.03)
    assert in_loop.model.program.num_unknown_loops == 0


def test_replicas():
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    strategy = IPUStrategy()

    @tf.function
    def total(x):
        return cross_replica_sum(x)

    assert strategy.run(total, [tf.ones(4)]).numpy().tolist() == [2.0] * 4
    report = last_report()
    assert report.model.options.num_replicas == 2
    assert "collective" in {row.family for row in report.rows}
    SYSTEM.reset()


# -- what is asked for when a program is compiled ------------------------------


def test_files_and_cycles(strategy, options, monkeypatch, caplog):
    folder = options(**{"autoReport.all": "true"})
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--log_cycle_count=0")
    train_step, _, _ = train_step_of(strategy, 8)
    batch = tf.ones((4, 8)), tf.ones((4, 8))
    for _ in range(2):
        strategy.run(train_step, batch)
    assert [path.name for path in folder.iterdir()] == ["train_step"]
    report = json.loads((folder / "train_step" / "report.json").read_text())
    (logged,) = {record.getMessage() for record in caplog.records}
    assert len(caplog.records) == 2
    cycles = report["cycles"]["per_step"]
    assert logged == (f"Cycle count: {cycles} (modelled, program 'train_step' of 1 steps, tile 0)")


def test_what_does_not_fit_is_refused(strategy, monkeypatch):
    # 400 MB of weights, with as much of momentum and of gradients.
    train_step, model, optimizer = train_step_of(strategy, 10_000)
    before = float(tf.reduce_sum(model.weights[0].value))
    batch = tf.ones((4, 10_000)), tf.ones((4, 10_000))
    for _ in range(2):
        with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
            strategy.run(train_step, batch)
        assert caught.value.message.startswith("Memory allocation error : Out of memory on tile ")
        assert "Program 'train_step' needs the most bytes for" in caught.value.message
        assert "\n- float16: " in caught.value.message
    assert float(tf.reduce_sum(model.weights[0].value)) == before
    assert int(optimizer.iterations) == 0

    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"debug.allowOutOfMemory": "true"}')
    strategy.run(train_step, batch)
    assert int(optimizer.iterations) == 1


def test_what_has_no_model_runs_unless_that_is_ruled_out(strategy, options, caplog):
    caplog.set_level("INFO", "ipu_keras")

    def total(iterator):
        result = 0.0
        for x in iterator:
            result += tf.reduce_sum(x)
        return result

    def run():
        iterator = iter(tf.data.Dataset.from_tensors(tf.ones(4)).repeat(3))
        return strategy.run(tf.function(total), [iterator]).numpy()

    assert run() == 12.0
    assert not caplog.records  # it is small

    folder = options(**{"autoReport.all": "true"})
    assert run() == 12.0
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(
        "There is no model of program 'total', nor its files. The function 'total' cannot be "
    )
    assert "ValueError: A loop over all of a dataset has an unknown number" in record.getMessage()
    assert list(folder.iterdir()) == []

    options(**ALWAYS)
    with pytest.raises(
        LoweringError, match="A loop over all of a dataset has an unknown number of"
    ):
        run()


@pytest.mark.parametrize("captures", [False, True])
def test_a_loop_over_a_dataset_has_no_model(strategy, captures):
    dataset = tf.data.Dataset.from_tensors(tf.ones(4)).repeat(3)

    def total(data):
        result = 0.0
        for x in data:
            result += tf.reduce_sum(x)
        return result

    function = tf.function(lambda: total(dataset)) if captures else tf.function(total)
    assert strategy.run(function, [] if captures else [dataset]).numpy() == 12.0
    with pytest.raises(LoweringError, match=r"of a dataset, read an iterator with `next`"):
        last_report()


def test_what_cannot_be_traced_again_has_no_model(strategy, options):
    options(**ALWAYS)

    @tf.function
    def element(iterator):
        return iterator.get_next_as_optional().get_value()

    iterator = iter(tf.data.Dataset.from_tensors(tf.ones(4)))
    message = "'element' cannot be traced as an IPU takes it.*get_next_as_optional"
    with pytest.raises(LoweringError, match=message):
        strategy.run(element, [iterator])


def test_compiled_again(strategy, caplog):
    @tf.function
    def scaled(x, factor, *, bias=None):
        return x * factor if bias is None else x * factor + bias["value"]

    strategy.run(scaled, [tf.ones((2, 3)), 2])
    strategy.run(scaled, [tf.ones((2, 3)), 2])
    strategy.run(scaled, [tf.ones((4, 3)), 2])
    strategy.run(scaled, [tf.ones((4, 3), tf.float16), 3])
    strategy.run(scaled, [tf.ones((4, 3)), 2], {"bias": {"value": np.ones(3, np.float32)}})
    strategy.run(scaled, [tf.ones((2, 3)), 2])
    reasons = [
        ["args[0] has the shape (4, 3) instead of (2, 3)"],
        ["args[0] has the dtype float16 instead of float32", "args[1] is 3 instead of 2"],
        ["kwargs['bias']['value'] is given, which was not before"],
    ]
    assert [record.getMessage() for record in caplog.records] == [
        f"Program 'scaled' is compiled again: {'; '.join(each)}." for each in reasons
    ]
    assert [list(one.reasons) for one in last_report().recompilations] == reasons
    strategy.run(tf.function(scaled.python_function), [tf.ones((2, 3)), 2])
    assert last_report().recompilations == ()  # another function, of the same name

    # Another function of that name is another program.
    @tf.function(autograph=False)
    def scaled(x):
        return x

    strategy.run(scaled, [tf.ones(7)])
    assert len(caplog.records) == 3


# -- what runs, and what is kept -----------------------------------------------


def test_a_dict_of_other_keys_is_another_program(strategy):
    @tf.function
    def negated(tensors):
        return tf.nest.map_structure(tf.negative, tensors)

    compilations = device_for(0).engine.counters().num_compilations.get("negated", 0)
    for name in ("first", "second", "first"):
        found = strategy.run(negated, ({name: tf.ones(2)},))
        np.testing.assert_array_equal(found[name], [-1.0, -1.0])
    assert device_for(0).engine.counters().num_compilations["negated"] == compilations + 2


def test_empty_tensors(strategy, options):
    options(**ALWAYS)

    @tf.function
    def rows(x):
        return tf.shape(x)[0]

    before = device_for(0).engine.loaded
    assert strategy.run(rows, [tf.ones((0, 3))]).numpy() == 0
    assert device_for(0).engine.loaded is before  # no program


def test_a_function_within_a_function_that_calls_python(strategy):
    @tf.function
    def double(x):
        return x + x

    @tf.function
    def outer(x):
        def call(value):
            return strategy.run(double, [value]).numpy()

        return tf.py_function(call, [x], tf.float32)

    assert strategy.run(outer, [tf.constant(3.0)]).numpy() == 6.0
    assert device_for(0).engine.loaded.program.name == "outer"


def test_an_error_of_the_function_is_no_execution(strategy):
    @tf.function
    def failing(x):
        tf.debugging.assert_positive(x)
        return x

    counters = device_for(0).engine.counters
    with pytest.raises(tf.errors.InvalidArgumentError):
        strategy.run(failing, [tf.constant(-1.0)])
    assert "failing" not in counters().num_executions
    strategy.run(failing, [tf.constant(1.0)])
    assert counters().num_executions["failing"] == 1


def test_iterators_can_be_forgotten(strategy):
    @tf.function
    def element(iterator):
        return next(iterator)

    iterator = iter(tf.data.Dataset.from_tensors(tf.ones(4)))
    strategy.run(element, [iterator])
    reference = weakref.ref(iterator)
    del iterator
    gc.collect()
    assert reference() is None
    assert last_report().model.host_cycles > 0


def test_functions_can_be_forgotten(strategy):
    @tf.function
    def once(x):
        return x + 1.0

    @tf.function
    def other(x):
        return x + 2.0

    strategy.run(once, [tf.ones(2)])
    strategy.run(other, [tf.ones(2)])
    reference = weakref.ref(once)
    del once
    gc.collect()
    assert reference() is None

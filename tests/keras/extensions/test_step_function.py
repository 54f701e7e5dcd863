import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.feeds.dataset_feed import DatasetFeed, element_format
from ipu_keras.ir import TensorSpec
from ipu_keras.keras.extensions.batch_formats import batch_format
from ipu_keras.keras.extensions.step_function import BatchFormats, Layout, StepFunction
from ipu_keras.program import OutfeedMode
from ipu_keras.program.compilation_history import CompilationHistory


@pytest.fixture
def make(strategy, device):
    def make(step, outfeed_mode=OutfeedMode.LAST):
        return StepFunction(
            "count",
            step,
            strategy,
            device,
            outfeed_mode=outfeed_mode,
            layout=Layout(),
            compiled=False,
            history=CompilationHistory(),
        )

    return make


def feed_of(values, num_steps):
    dataset = tf.data.Dataset.from_tensor_slices(values)
    return DatasetFeed(dataset, element_format(dataset.element_spec), num_steps=num_steps)


def test_a_feed_is_executed_to_its_end(make, executed):
    function = make(lambda x: {"sum": tf.reduce_sum(x)})
    with feed_of(tf.reshape(tf.range(8), [4, 2]), num_steps=2) as feed:
        assert [function(feed), function(feed)] == [{"sum": 5}, {"sum": 13}]
        with pytest.raises(StopIteration):
            function(feed)
    assert executed("count") == (2, 4)


def test_all_steps_are_stacked(make):
    function = make(lambda x: (x, [tf.reduce_sum(x)]), OutfeedMode.ALL)
    with feed_of(tf.reshape(tf.range(8), [4, 2]), num_steps=2) as feed:
        values, (sums,) = function(feed)
    np.testing.assert_array_equal(values, [[0, 1], [2, 3]])
    np.testing.assert_array_equal(sums, [1, 5])
    assert isinstance(sums, np.ndarray)


def test_a_single_batch(make):
    function = make(lambda batch: batch[0] + batch[1]["b"])
    assert function([(np.float64(1), {"b": tf.constant(2.0)}, None)]) == 3


def test_each_format_is_compiled_once(make):
    traces = []

    def step(batch):
        traces.append(batch)
        return tf.reduce_sum(tf.nest.flatten(batch)[0])

    function = make(step)
    for batch in (np.ones(2, "float32"), {"a": np.ones(2, "float32")}, np.ones(3, "float32")):
        for _ in range(2):
            function([batch])
    assert len(traces) == len(function.executables) == 3
    assert [e.program.repeat_count for e in function.executables] == [1, 1, 1]
    for num_steps in (2, 4):
        with feed_of(np.ones([4, 2], "float32"), num_steps=num_steps) as feed:
            function(feed)
    assert [e.program.repeat_count for e in function.executables] == [1, 1, 1, 2, 4]
    # A step of one format is traced once, however many an execution has.
    assert len(traces) == 3


def test_a_step_that_makes_keras_variables_is_traced_once(make, strategy):
    """TensorFlow traces a second time without variables that it has lifted out of the trace."""
    with strategy.scope():
        optimizer = keras.optimizers.SGD(0.5, momentum=0.5)
    weight, traces = None, []

    def step(x):
        nonlocal weight
        traces.append(x)
        if weight is None:
            weight = keras.Variable(lambda shape, dtype: tf.ones(shape, dtype), (), "float32")
        optimizer.apply_gradients([(x, weight)])
        return weight.value

    function = make(step)
    assert [float(function([np.float32(x)])) for x in (1.0, 0.0)] == [0.5, 0.25]
    assert len(traces) == 1
    assert weight.value.device.endswith("IPU:0")


def test_it_is_said_why_a_program_is_compiled_again(make, device, caplog):
    before = device.engine.counters().num_compilations.get("count", 0)
    function = make(lambda batch: tf.reduce_sum(tf.nest.flatten(batch)[0]))
    x = np.ones((2, 3), "float32")
    for _ in range(2):
        for batch in ((x, {"b": x}), (x, {"b": x[:1]}), (x,)):
            function([batch])
    assert [record.getMessage() for record in caplog.records] == [
        "Program 'count' is compiled again: data[1]['b'] has the shape (1, 3) instead of (2, 3).",
        "Program 'count' is compiled again: data[1]['b'] is not given, which was before.",
    ]
    assert {(r.name, r.levelname) for r in caplog.records} == {("ipu_keras", "WARNING")}
    assert device.engine.counters().num_compilations["count"] == before + 3
    (history,) = {id(e.history): e.history for e in function.executables}.values()
    assert len(history.recompilations("count")) == 2


def test_what_could_not_be_compiled_is_not_compiled_again(make, device, caplog):
    before = device.engine.counters().num_compilations.get("count", 0)
    broken = [True]

    def step(x):
        return x[5] if broken else x

    function = make(step)
    with pytest.raises(ValueError, match="slice index 5"):
        function([np.ones(2, "float32")])
    broken.clear()
    function([np.ones(2, "float32")])
    assert not caplog.records
    assert device.engine.counters().num_compilations["count"] == before + 1


def test_steps_run_in_the_context_of_the_replica_on_the_device(make, strategy, device):
    contexts = []

    def step(x):
        contexts.append((tf.distribute.get_strategy(), tf.distribute.in_cross_replica_context()))
        return x

    make(step)([np.ones(2, "float32")])
    assert contexts == [(strategy, False)]
    assert sum(device.counters().program_executions.values()) == 1


def test_variables_that_a_step_makes_are_on_the_device(make, strategy):
    made = []

    def step(x):
        if not made:
            made.append(tf.Variable(1.0))
        return x + made[0]

    function = make(step)
    assert function([np.float32(1)]) == 2
    assert made[0].device == strategy.device.name


def test_the_format_of_a_batch():
    batch = (np.zeros([2, 3]), {"label": tf.zeros([2], tf.int32), "none": None}, 1.5)
    element = batch_format(batch)
    assert element.specs == (
        TensorSpec((2, 3), "float32"),
        TensorSpec((2,), "int32"),
        TensorSpec((), "float32"),
    )
    assert element.structure == (0, {"label": 1, "none": None}, 2)
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"^Unsupported datatype int64 on"):
        batch_format(np.zeros(2, "int64"))


def test_formats_of_batches_are_found_out_once():
    formats = BatchFormats()
    batch = (np.zeros([2, 3]), np.zeros(2, np.int32), None)
    assert batch not in formats
    element = formats.of(batch)
    assert element == batch_format(batch)
    assert batch in formats
    assert formats.of(tuple(None if a is None else a + 1 for a in batch)) is element
    for other in ((batch[0],), (*batch[:2], batch[1]), (batch[0][:1], *batch[1:]), batch[:2]):
        assert other not in formats
        assert formats.of(other) == batch_format(other) != element
    assert formats.of((batch[0].astype(np.float32), *batch[1:])) is not element
    for other in (list(batch), (batch[0], [batch[1]]), (tf.zeros([2, 3]),), np.float32(1)):
        assert formats.of(other) == batch_format(other)
        assert other not in formats


def test_results_are_the_last_ones_until_something_is_written(make, strategy):
    with strategy.scope():
        variable = tf.Variable(1.0)
    function, other = (make(lambda x: {"sum": x + variable}) for _ in range(2))
    results = function([np.float32(1)])
    assert function.is_last(results)
    assert not function.is_last(dict(results))
    assert not other.is_last(results)
    assert variable.numpy() == 1
    assert function.is_last(results)
    variable.assign(2.0)
    assert not function.is_last(results)
    results = function([np.float32(1)])
    assert function.is_last(results)
    other([np.float32(1)])
    assert not function.is_last(results)
    every = make(lambda x: x, OutfeedMode.ALL)
    assert not every.is_last(every([np.float32(1)]))

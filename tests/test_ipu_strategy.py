import doctest
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import ipu_strategy
from ipu_keras.config import IPUConfig, get_ipu_config
from ipu_keras.device import DRIVER, device_for
from ipu_keras.ipu_strategy import IPUStrategy, IPUStrategyV1, current_ipu_strategy
from ipu_keras.machine.system import SYSTEM

IPU = "/job:localhost/replica:0/task:0/device:IPU:{}"


@pytest.fixture(autouse=True, scope="module")
def two_devices():
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = [1, 1]
    config.configure_ipu_system()
    yield
    SYSTEM.reset()


@pytest.fixture
def strategy():
    return IPUStrategy()


@pytest.fixture
def device():
    device = device_for(0)
    device.reset_counters()
    return device


@tf.function
def double(x):
    return x + x


def test_example_in_the_docstring():
    assert doctest.testmod(ipu_strategy).failed == 0


# The strategy itself


def test_is_a_distribution_strategy_of_one_replica(strategy):
    assert isinstance(strategy, tf.distribute.Strategy)
    assert strategy.num_replicas_in_sync == 1
    assert strategy.extended.worker_devices == (IPU.format(0),)
    assert strategy.device is device_for(0)
    assert IPUStrategyV1 is IPUStrategy


def test_the_default_system_is_configured_if_none_is(two_devices):
    previous = SYSTEM.config
    SYSTEM.reset()
    assert IPUStrategy().device.ipus == (0,)
    assert len(get_ipu_config()) == 1
    SYSTEM.reset()
    SYSTEM.configure(previous)


def test_a_device_that_is_not_configured_is_refused():
    with pytest.raises(ValueError, match=r"^/device:IPU:7 is not configured; configured devices"):
        IPUStrategy("/device:IPU:7")


@pytest.mark.parametrize("name", ["x", "/job:here/x:0"])
def test_what_is_no_name_of_a_device(name):
    with pytest.raises(
        ValueError, match=rf"^`ipu_device` must be .* Received: ipu_device='{name}'"
    ):
        IPUStrategy(name)


@pytest.mark.parametrize("left", ["one device", "none"])
def test_a_scope_of_a_device_that_is_configured_no_longer_is_not_entered(left):
    previous, strategy = SYSTEM.config, IPUStrategy("/device:IPU:1")
    SYSTEM.reset()
    if left == "one device":
        IPUConfig().configure_ipu_system()
    try:
        scope = strategy.scope()
        for _ in range(2):
            with pytest.raises(ValueError, match=r"^/device:IPU:1 is not configured; "), scope:
                pass
            assert not tf.distribute.has_strategy()
        with IPUStrategy().scope() as entered:
            assert current_ipu_strategy() is entered
            assert tf.Variable(1.0).device == IPU.format(0)
            with pytest.raises(RuntimeError, match=r"^Mixing different tf\.distribute\.Str"):
                IPUStrategy("/device:CPU:0").scope().__enter__()
            assert current_ipu_strategy() is entered
    finally:
        SYSTEM.reset()
        SYSTEM.configure(previous)
    with scope as entered, strategy.scope():
        assert current_ipu_strategy() is entered is strategy
    assert not tf.distribute.has_strategy()


def test_a_strategy_on_another_kind_of_device_has_no_ipu():
    strategy = IPUStrategy("/device:CPU:0")
    assert strategy.device is None
    assert strategy.run(double, [tf.constant(2.0)]).numpy() == 4


def test_the_current_strategy(strategy):
    assert current_ipu_strategy() is None
    with strategy.scope():
        assert current_ipu_strategy() is strategy
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        assert current_ipu_strategy() is None


# Placement


def test_a_scope_after_a_function_that_was_mapped_has_raised():
    """TensorFlow's `map_fn` then leaves something behind that no scope can be entered with."""

    @tf.function
    def function(x):
        return tf.map_fn(lambda row: tf.ensure_shape(row, [7]), x)

    with pytest.raises(ValueError, match="7"):
        function(tf.zeros((2, 3)))
    assert tf.compat.v1.get_variable_scope().caching_device is not None
    for _ in range(2):
        with IPUStrategy().scope() as entered:
            assert current_ipu_strategy() is entered
    assert not tf.distribute.has_strategy()


def test_scope_puts_variables_and_tensors_on_the_device(strategy):
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0])
        layer = keras.layers.Dense(2)
        layer.build((None, 2))
        tensor = tf.constant(1.0)
    assert variable.device == IPU.format(0)
    assert (variable + 1).device == IPU.format(0)
    assert tensor.device == IPU.format(0)
    assert {v.value.device for v in layer.variables} == {IPU.format(0)}
    assert tf.constant(1.0).device.endswith("CPU:0")


def test_variables_made_while_a_function_is_traced_are_on_the_device(strategy):
    with strategy.scope():
        layer = keras.layers.Dense(2)

    @tf.function
    def call(x):
        return layer(x)

    assert strategy.run(call, [tf.ones([1, 3])]).device == IPU.format(0)
    assert {v.value.device for v in layer.variables} == {IPU.format(0)}


def test_two_strategies_on_two_devices(strategy):
    other = IPUStrategy("/device:IPU:1")
    for device in device_for(0), device_for(1):
        device.reset_counters()
    with other.scope():
        variable = tf.Variable(3.0)
    assert variable.device == IPU.format(1)

    @tf.function
    def triple():
        return 3.0 * variable

    assert other.run(triple).device == IPU.format(1)
    assert strategy.run(double, [tf.constant(1.0)]).device == IPU.format(0)
    assert device_for(0).counters().num_function_calls == 1
    assert device_for(1).counters().num_function_calls == 1
    with strategy.scope(), pytest.raises(RuntimeError, match="strategy"), other.scope():
        pass


def test_the_device_of_a_strategy_cannot_be_changed(strategy):
    with pytest.raises(ValueError, match=r"device of an IPUStrategy cannot be changed.*CPU:0"):
        strategy.extended._default_device = "/device:CPU:0"


# run


@pytest.mark.parametrize("name", ["run", "experimental_run_v2"])
def test_run_dispatches_a_function_to_the_device(strategy, device, name):
    result = getattr(strategy, name)(double, args=(tf.constant([1.0, 2.0]),))
    np.testing.assert_array_equal(result, [2, 4])
    assert result.device == IPU.format(0)
    assert device.counters().num_function_calls == 1


def test_run_takes_and_gives_nested_structures(strategy):
    @tf.function
    def swap(pair, *, extra, count):
        a, b = pair
        return {"b": b, "a": [a, None, extra["x"] * count]}

    result = strategy.run(
        swap,
        args=((tf.constant(1), tf.constant(2.0)),),
        kwargs={"extra": {"x": np.float32(3)}, "count": 2},
    )
    assert result["b"].numpy() == 2
    assert result["a"][0].numpy() == 1
    assert result["a"][1] is None
    assert result["a"][2].numpy() == 6
    assert {t.device for t in tf.nest.flatten(result) if t is not None} == {IPU.format(0)}


def test_run_takes_a_concrete_function(strategy):
    concrete = double.get_concrete_function(tf.TensorSpec([2]))
    result = strategy.run(concrete, [tf.constant([1.0, 2.0])])
    assert result.device == IPU.format(0)


def test_run_traces_once_in_the_context_of_the_replica(strategy):
    contexts = []

    @tf.function
    def where(x):
        contexts.append((tf.distribute.get_strategy(), tf.distribute.in_cross_replica_context()))
        return x

    for value in (1.0, 2.0):
        strategy.run(where, [tf.constant(value)])
    assert contexts == [(strategy, False)]


def test_run_inside_a_function(strategy, device):
    def triple_positive(x):
        if x > 0:  # needs AutoGraph
            x = 3.0 * x
        return x

    @tf.function
    def both(x):
        return strategy.run(triple_positive, args=(strategy.run(double, args=(x,)),))

    with strategy.scope():
        assert both(tf.constant(-1.0)).numpy() == -2
        result = both(tf.constant(1.0))
    assert result.numpy() == 6
    assert result.device == IPU.format(0)
    assert device.counters().num_function_calls == 2


def test_run_checks_each_signature_of_a_function(strategy):
    @tf.function
    def widen(x, wide=False, unhashable=None):
        return tf.cast(x, tf.float64) if wide else x

    one, two = tf.constant(1.0), tf.constant([1.0, 2.0])
    for _ in range(2):
        assert strategy.run(widen, (one,)).shape == ()
        assert strategy.run(widen, (two,)).shape == (2,)
        assert strategy.run(widen, (one, False, tf.Variable(1))).shape == ()
        for arguments in [(one, True), (two, True), (one, True, {"v": tf.Variable(1)})]:
            with pytest.raises(TypeError, match=r"^Unsupported data type for output: float64"):
                strategy.run(widen, arguments)
        with pytest.raises(TypeError, match=r"^Unsupported data type for output: float64"):
            strategy.run(widen, (one,), {"wide": True})


@pytest.mark.parametrize("fn", [lambda x: x, len, None], ids=["lambda", "builtin", "none"])
def test_run_refuses_what_is_no_function_of_tensorflow(strategy, device, fn):
    message = (
        r"^IPUStrategyV1\.run\(fn, \.\.\.\) does not support eager execution\. Either convert "
        r"`fn` into a tf\.function or .*\nAn IPU runs whole programs.* Received: fn="
    )
    with pytest.raises(ValueError, match=message):
        strategy.run(fn, [tf.constant(1.0)])
    assert device.counters().num_function_calls == 0


@pytest.mark.parametrize(
    "argument",
    [np.ones(2), tf.ones([2], tf.float64), {"x": [np.float64(1)]}],
    ids=["array", "tensor", "nested"],
)
def test_run_refuses_float64_inputs(strategy, device, argument):
    with pytest.raises(TypeError, match=r"^Unsupported data type for input: float64\n.*cast it"):
        strategy.run(double, [argument])
    with pytest.raises(TypeError, match=r"^Unsupported data type for input: float64"):
        strategy.run(double, kwargs={"x": argument})
    assert device.counters().num_function_calls == 0


def test_run_refuses_float64_outputs_before_it_runs_anything(strategy, device):
    with strategy.scope():
        ran = tf.Variable(0)

    @tf.function
    def widen(x):
        ran.assign_add(1)
        return {"x": x, "wide": [tf.cast(x, tf.float64)]}

    for _ in range(2):
        with pytest.raises(TypeError, match=r"^Unsupported data type for output: float64\n"):
            strategy.run(widen, [tf.constant(1.0)])
    assert ran.numpy() == 0
    assert device.counters().num_function_calls == 0


def test_errors_of_a_function_keep_their_type(strategy):
    @tf.function
    def check(x):
        tf.debugging.assert_positive(x, message="must be positive")
        return x

    with pytest.raises(tf.errors.InvalidArgumentError, match="must be positive"):
        strategy.run(check, [tf.constant(-1.0)])


def test_run_costs_little_more_than_that_of_another_strategy(strategy):
    other = tf.distribute.OneDeviceStrategy("/cpu:0")
    value = tf.constant(1.0)

    def calls(run):
        """Returns how many functions of Python are called, which unlike time is always the same."""
        num_calls = 0

        def count(frame, event, argument):
            nonlocal num_calls
            num_calls += event == "call"

        for _ in range(3):  # the first ones trace and compile
            run()
        profiler = sys.getprofile()
        sys.setprofile(count)
        try:
            run()
        finally:
            sys.setprofile(profiler)
        return num_calls

    ours = calls(lambda: strategy.run(double, (value,)))
    theirs = calls(lambda: other.run(double, (value,)))
    assert 100 < ours < 1.5 * theirs


# reduce


@pytest.mark.parametrize(
    ("reduce_op", "axis", "expected"),
    [
        ("SUM", None, [[1, 2], [3, 4]]),
        ("mean", None, [[1, 2], [3, 4]]),
        (tf.distribute.ReduceOp.SUM, 0, [4, 6]),
        (tf.distribute.ReduceOp.MEAN, 1, [1.5, 3.5]),
    ],
)
def test_reduce(strategy, reduce_op, axis, expected):
    value = strategy.run(double, [tf.constant([[0.5, 1.0], [1.5, 2.0]])])
    np.testing.assert_allclose(strategy.reduce(reduce_op, value, axis), expected)


def test_reduce_without_an_axis(strategy):
    assert strategy.reduce("SUM", tf.constant(2.0)).numpy() == 2


def test_reduce_inside_a_function(strategy):
    @tf.function
    def total(x):
        per_replica = strategy.run(lambda v: v * 2, args=(x,))
        return strategy.reduce("SUM", per_replica, axis=0)

    with strategy.scope():
        assert total(tf.constant([1.0, 2.0])).numpy() == 6


# Datasets


def test_reading_a_dataset_in_the_scope_is_refused(strategy):
    dataset = tf.data.Dataset.range(3)
    message = "^Accessing dataset elements can not be accessed in eager mode when inside 'IPUStr"
    with strategy.scope():
        iterator = iter(dataset)
        with pytest.raises(RuntimeError, match=message):
            next(iterator)
        with pytest.raises(RuntimeError, match=message):
            iterator.get_next()
        with pytest.raises(RuntimeError, match=message):
            list(dataset)
    assert next(iterator).numpy() == 0
    assert len(list(dataset)) == 3


def test_reading_a_dataset_in_the_scope_can_be_allowed():
    with IPUStrategy(enable_dataset_iterators=False).scope():
        assert [int(value) for value in tf.data.Dataset.range(3)] == [0, 1, 2]


def test_distributed_datasets_can_be_read_in_the_scope(strategy):
    dataset = tf.data.Dataset.range(3)
    distributed = strategy.experimental_distribute_dataset(dataset)
    from_function = strategy.distribute_datasets_from_function(lambda context: dataset)
    with strategy.scope():
        assert [int(value) for value in distributed] == [0, 1, 2]
        assert [int(value) for value in from_function] == [0, 1, 2]
        with pytest.raises(RuntimeError, match=r"^Accessing dataset elements"):
            next(iter(dataset))


def test_an_iterator_can_be_read_inside_a_function(strategy, device):
    dataset = tf.data.Dataset.from_tensor_slices(tf.ones([4]))

    @tf.function
    def total(iterator):
        return next(iterator) + next(iterator)

    with strategy.scope():
        iterator = iter(dataset)
    result = strategy.run(total, [iterator])
    assert result.numpy() == 2
    assert result.device == IPU.format(0)


# Custom training loops


def trained(scope, run, *, optimizer):
    """Weights and losses after five epochs of a custom loop."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(32, 4)).astype("float32")
    y = x @ generator.normal(size=(4, 1)).astype("float32")
    with scope:
        keras.utils.set_random_seed(3)
        model = keras.Sequential(
            [keras.Input([4]), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)]
        )
        optimizer = keras.optimizers.get(optimizer)
        metric = keras.metrics.MeanAbsoluteError()

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            prediction = model(x, training=True)
            loss = tf.reduce_mean((prediction - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        metric.update_state(y, prediction)
        return loss

    losses = [
        run(step, (x[i : i + 8], y[i : i + 8])) for _ in range(5) for i in range(0, len(x), 8)
    ]
    devices = {v.value.device for v in [*model.variables, *optimizer.variables, *metric.variables]}
    return model.get_weights(), losses, metric.result(), devices


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_custom_loop_trains_as_on_the_cpu(strategy, device, optimizer):
    default = tf.distribute.get_strategy()
    weights, losses, metric, _ = trained(
        default.scope(), lambda step, batch: step(*batch), optimizer=optimizer
    )
    on_ipu = trained(
        strategy.scope(), lambda step, batch: strategy.run(step, batch), optimizer=optimizer
    )
    for actual, expected in zip(on_ipu[0], weights, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(on_ipu[1], losses, rtol=1e-5)
    np.testing.assert_allclose(on_ipu[2], metric, rtol=1e-5)
    assert {loss.device for loss in on_ipu[1]} == {IPU.format(0)}
    assert on_ipu[3] == {IPU.format(0)}
    assert device.counters().num_function_calls >= 20


def test_a_loop_inside_one_function(strategy, device):
    """The documented style: the device gets the whole loop as one program."""
    with strategy.scope():
        weight = tf.Variable(0.0)
    dataset = tf.data.Dataset.from_tensor_slices(tf.range(1.0, 9.0)).repeat()

    @tf.function
    def loop(iterator):
        for _ in tf.range(8):
            with tf.GradientTape() as tape:
                loss = (weight - next(iterator)) ** 2
            weight.assign_sub(0.5 * tape.gradient(loss, weight))
        return loss

    loss = strategy.run(loop, [iter(dataset)])
    assert loss.device == IPU.format(0)
    assert weight.numpy() == 8
    assert device.counters().num_function_calls == 1


@pytest.mark.parametrize("device", [0, None, b"/device:IPU:0", ["/device:IPU:0"]])
def test_the_name_of_a_device_is_a_text(device):
    with pytest.raises(TypeError, match=r"^`ipu_device` must be the name .* Received: ipu_device="):
        IPUStrategy(device)


def test_an_optimizer_that_is_first_used_outside_of_the_scope(strategy):
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable**2)
        return [tape.gradient(loss, variable.value)]

    with strategy.scope():
        variable = keras.Variable([1.0, 2.0])
        optimizer, built = keras.optimizers.SGD(0.1, momentum=0.9), keras.optimizers.SGD(0.1)
        built.build([variable])
    with pytest.raises(RuntimeError, match="Need to be inside") as raised:
        optimizer.apply(gradients(), [variable])
    assert raised.value.__notes__ == [
        "Variables of an IPUStrategy are made in its scope. Build the optimizer there, before it "
        "updates anything: `with strategy.scope(): optimizer.build(model.trainable_variables)`."
    ]
    built.apply(gradients(), [variable])
    np.testing.assert_allclose(variable.numpy(), [0.8, 1.6])

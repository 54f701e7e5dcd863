"""Layers that own their variables: against NumPy, in graphs, functions and on the IPU."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from recurrent_sequences import gru_by_numpy, lstm_by_numpy

from ipu_keras import profile
from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops import rnn_ops
from ipu_keras.ops.rnn import keras_weights, popnn_gru, popnn_lstm
from ipu_keras.ops.rnn_ops import (
    LSTMStateTuple,
    PopnnAUGRU,
    PopnnDynamicGRU,
    PopnnDynamicLSTM,
    PopnnGRU,
    PopnnLSTM,
)

TIME, BATCH, FEATURES, UNITS = 4, 3, 2, 5
LENGTHS = np.array([4, 0, 2], np.int32)
MASK = np.arange(TIME)[:, np.newaxis] < LENGTHS
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(TIME, BATCH, FEATURES)).astype("f")
H = RANDOM.normal(size=(BATCH, UNITS)).astype("f")
C = RANDOM.normal(size=(BATCH, UNITS)).astype("f")
SCORES = RANDOM.uniform(size=(BATCH, TIME)).astype("f")

# What each layer takes besides the inputs.
CALLS = {
    PopnnLSTM: {"initial_state": LSTMStateTuple(c=C, h=H)},
    PopnnDynamicLSTM: {"initial_state": LSTMStateTuple(c=C, h=H), "seq_len": LENGTHS},
    PopnnGRU: {"initial_state": H},
    PopnnDynamicGRU: {"initial_state": H, "seq_len": LENGTHS},
    PopnnAUGRU: {"initial_state": H, "seq_len": LENGTHS, "attention_score": SCORES},
}
LAYERS = pytest.mark.parametrize("layer_class", CALLS)
VARIANTS = [(layer, {}) for layer in CALLS] + [
    (layer, {"reset_after": True}) for layer in (PopnnGRU, PopnnDynamicGRU, PopnnAUGRU)
]


def built(layer_class, **arguments):
    layer = layer_class(
        UNITS,
        weights_initializer=tf.keras.initializers.GlorotUniform(seed=2),
        bias_initializer=tf.random_normal_initializer(seed=1),
        **arguments,
    )
    layer.build(INPUTS.shape)
    return layer


def expected_of(layer):
    """What NumPy has for the outputs and the last state."""
    kernel, biases = layer.kernel.numpy(), layer.biases.numpy()
    calls = CALLS[type(layer)]
    mask = MASK if "seq_len" in calls else None
    if isinstance(layer, PopnnLSTM | PopnnDynamicLSTM):
        weights = rnn_ops.lstm_weights_to_keras(kernel, biases)
        outputs, c = lstm_by_numpy(INPUTS, H, C, *weights, mask=mask)
        state = LSTMStateTuple(c, outputs[-1])
    else:
        weights = rnn_ops.gru_weights_to_keras(kernel, biases)
        attention = calls["attention_score"].T if "attention_score" in calls else None
        options = {"reset_after": layer.reset_after, "mask": mask}
        outputs = gru_by_numpy(INPUTS, H, *weights, attention, **options)
        state = outputs[-1]
    return np.where(MASK[..., np.newaxis], outputs, 0) if mask is not None else outputs, state


def assert_equal(actual, expected, tolerance=1e-5):
    tf.nest.assert_same_structure(actual, expected)
    for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("module", [popnn_lstm, popnn_gru, keras_weights])
def test_examples_in_the_docstrings(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("layer_class", "arguments"), VARIANTS)
def test_values(layer_class, arguments, training):
    layer = built(layer_class, **arguments)
    assert_equal(layer(INPUTS, training=training, **CALLS[layer_class]), expected_of(layer))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layer_class", [PopnnLSTM, PopnnAUGRU])
def test_gradients(layer_class, training):
    """Also of what is inferred, which takes another way."""
    layer = built(layer_class)

    @tf.function
    def run(inputs, kernel, biases):
        layer.kernel.assign(kernel)
        layer.biases.assign(biases)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs, _ = layer(inputs, training=training, **CALLS[layer_class])
            total = tf.reduce_sum(outputs**2)
        return tape.gradient(total, [inputs, *layer.trainable_variables])

    biases, kernel = (variable.numpy() for variable in layer.trainable_variables)
    inputs_gradient, biases_gradient, kernel_gradient = run(INPUTS, kernel, biases)

    def total(**moved):
        layer.kernel.assign(moved.get("kernel", kernel))
        layer.biases.assign(moved.get("biases", biases))
        inputs = tf.constant(moved.get("inputs", INPUTS))
        return tf.reduce_sum(layer(inputs, **CALLS[layer_class])[0] ** 2)

    given = {
        "inputs": (INPUTS, inputs_gradient),
        "kernel": (kernel, kernel_gradient),
        "biases": (biases, biases_gradient),
    }
    for name, (value, gradient) in given.items():
        # Half of the way follows the gradient: the difference of two sums has to be large beside
        # what float32 rounds off of each.
        direction = np.random.default_rng(3).normal(size=value.shape).astype("f")
        step = 1e-3 * (direction + gradient / np.sqrt(np.mean(np.square(gradient))))
        difference = total(**{name: value + step}) - total(**{name: value - step})
        np.testing.assert_allclose(np.sum(gradient * step), difference / 2, rtol=2e-3)


@LAYERS
def test_in_the_graph_of_a_session(layer_class):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inputs = tf.compat.v1.placeholder(tf.float32, INPUTS.shape)
        layer = layer_class(UNITS, seed=3)
        outputs, state = layer(inputs, **CALLS[layer_class])
        variables = tf.compat.v1.trainable_variables()
        scope = {variable.name.partition("/")[0] for variable in variables}
        assert scope == {layer.name}
        gradients = tf.gradients(outputs, variables)
        session.run(tf.compat.v1.global_variables_initializer())
        found = session.run([outputs, state, gradients, variables], {inputs: INPUTS})
    outputs, state, gradients, variables = found
    eager = layer_class(UNITS)
    eager.build(INPUTS.shape)
    for variable, value in zip((eager.kernel, eager.biases), variables, strict=True):
        variable.assign(value)
    with tf.GradientTape() as tape:
        results = eager(INPUTS, **CALLS[layer_class])
    assert_equal([outputs, state], list(results))
    assert_equal(gradients, tape.gradient(results[0], [eager.kernel, eager.biases]))


def test_variable_scopes():
    with tf.Graph().as_default():
        inputs = tf.zeros(INPUTS.shape)
        for layer in (PopnnGRU(UNITS), PopnnGRU(UNITS), PopnnGRU(UNITS, name="mine")):
            layer(inputs)
        PopnnGRU(UNITS)(inputs, scope="other")
        names = [variable.name for variable in tf.compat.v1.trainable_variables()]
    scopes = ["popnn_gru", "popnn_gru_1", "mine", "other"]
    assert names == [f"{scope}/{name}:0" for scope in scopes for name in ("kernel", "biases")]


@LAYERS
def test_on_the_ipu(layer_class):
    """Built in a strategy's scope, and by the function that a strategy runs."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    try:
        strategy = IPUStrategy()
        with strategy.scope():
            layer = layer_class(UNITS)

            @tf.function
            def run(inputs):
                with tf.GradientTape() as tape:
                    outputs, state = layer(inputs, **CALLS[layer_class])
                return outputs, state, tape.gradient(outputs, layer.trainable_variables)

            outputs, state, gradients = strategy.run(run, [tf.constant(INPUTS)])
        assert "IPU:0" in layer.kernel.device
        assert "IPU:0" in outputs.device
        assert_equal([outputs, state], list(expected_of(layer)))
        assert all(np.abs(gradient).max() > 0 for gradient in gradients)
    finally:
        SYSTEM.reset()


def test_weights_of_keras_and_back():
    random = np.random.default_rng(0)
    for reset_after in (True, False):
        shapes = [(2, 15), (5, 15), (2, 15) if reset_after else (15,)]
        weights = [random.normal(size=shape) for shape in shapes]
        ours = rnn_ops.gru_weights_from_keras(*weights, reset_after=reset_after)
        layer = built(PopnnGRU, reset_after=reset_after)
        assert [part.shape for part in ours] == [layer.kernel.shape, layer.biases.shape]
        assert_equal(list(rnn_ops.gru_weights_to_keras(*ours)), weights)
        unbiased = rnn_ops.gru_weights_from_keras(*weights[:2], reset_after=reset_after)
        np.testing.assert_array_equal(unbiased[1], np.zeros(ours[1].shape))
    weights = [random.normal(size=shape) for shape in ((2, 20), (5, 20), (20,))]
    ours = rnn_ops.lstm_weights_from_keras(*weights)
    layer = built(PopnnLSTM)
    assert [part.shape for part in ours] == [layer.kernel.shape, layer.biases.shape]
    assert_equal(list(rnn_ops.lstm_weights_to_keras(*ours)), weights)
    np.testing.assert_array_equal(
        rnn_ops.lstm_weights_from_keras(*weights[:2])[1], np.zeros((4, 5))
    )


@pytest.mark.parametrize("layer_class", [PopnnDynamicGRU, PopnnAUGRU])
def test_batch_major(layer_class):
    layer = built(layer_class)
    expected, expected_state = expected_of(layer)
    inputs = INPUTS.swapaxes(0, 1)
    outputs, state = layer(inputs, time_major=False, **CALLS[layer_class])
    assert_equal([outputs, state], [expected.swapaxes(0, 1), expected_state])


@LAYERS
def test_half_precision(layer_class):
    layer = built(layer_class, dtype=tf.float16, partials_dtype=tf.float16)
    calls = tf.nest.map_structure(
        lambda part: part.astype(np.float16) if part.dtype == np.float32 else part,
        CALLS[layer_class],
    )
    outputs, state = layer(INPUTS.astype(np.float16), **calls)
    assert {part.dtype for part in tf.nest.flatten([outputs, state])} == {tf.float16}
    assert_equal([outputs, state], list(expected_of(layer)), tolerance=0.01)


def test_initial_weights():
    same, again, other = (PopnnLSTM(UNITS, seed=seed) for seed in (1, 1, 2))
    for layer in (same, again, other):
        layer.build(INPUTS.shape)
    np.testing.assert_array_equal(same.kernel, again.kernel)
    assert np.abs(same.kernel - other.kernel).max() > 1e-3
    limit = np.sqrt(6 / sum(same.kernel.shape))
    assert limit * 0.8 < np.abs(same.kernel).max() <= limit
    np.testing.assert_array_equal(same.biases, np.zeros((4, UNITS)))
    ones = PopnnGRU(UNITS, weights_initializer=tf.compat.v1.ones_initializer())
    ones.build(INPUTS.shape)
    np.testing.assert_array_equal(ones.kernel, np.ones((FEATURES + UNITS, 3 * UNITS)))


def test_state_shapes():
    assert PopnnLSTM(UNITS).state_shape(2) == ([2, UNITS], [2, UNITS])
    assert PopnnGRU(UNITS).state_shape(2) == [2, UNITS]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_units": 0}, "`num_units` must be a positive integer"),
        ({"dtype": tf.float64}, "`dtype` must be tf.float16 or tf.float32. Received: dtype=tf"),
        ({"partials_dtype": "x"}, "Received: partials_dtype='x'"),
        ({"activation": "selu"}, "IPU custom RNN layer does not support 'selu' as an activation"),
        ({"recurrent_activation": "relu"}, "Acceptable value are 'tanh', 'softmax'"),
        ({"available_memory_proportion_bwd": 0}, "must be above 0 and at most 1"),
    ],
)
@pytest.mark.parametrize("layer_class", [PopnnLSTM, PopnnAUGRU])
def test_wrong_arguments(layer_class, arguments, message):
    with pytest.raises(ValueError, match=message):
        layer_class(**{"num_units": 4, **arguments})


@pytest.mark.parametrize(
    ("layer_class", "call", "message"),
    [
        (PopnnLSTM, {"initial_state": H}, "must be an LSTMStateTuple"),
        (PopnnLSTM, {"initial_state": LSTMStateTuple(C, H[:1])}, r"`initial_state.h` must have"),
        (PopnnGRU, {"initial_state": H[:, :2]}, r"here \(3, 5\)"),
        (PopnnGRU, {"initial_state": H.astype("float16")}, "of the layer's dtype, float32"),
        (PopnnDynamicGRU, {"seq_len": LENGTHS[:2]}, r"`seq_len` must be integers of shape"),
        (PopnnDynamicLSTM, {"seq_len": LENGTHS.astype("f")}, "seq_len of dtype float32"),
        (
            PopnnAUGRU,
            {"seq_len": LENGTHS, "attention_score": SCORES.T},
            r"`attention_score` must have the shape \(batch, time\), here \(3, 4\)",
        ),
    ],
)
def test_wrong_calls(layer_class, call, message):
    with pytest.raises(ValueError, match=message):
        layer_class(UNITS)(INPUTS, **call)


def test_wrong_input_shapes():
    for shape in ((3, 2), (4, 3, None)):
        with pytest.raises(ValueError, match="`input_shape` must have three dimensions"):
            PopnnGRU(UNITS).build(shape)


@LAYERS
def test_memory_proportions_reach_the_cost_model(layer_class):
    shares = {"available_memory_proportion_fwd": 0.005, "available_memory_proportion_bwd": 0.5}
    layer = built(layer_class, **shares)

    def gradient(inputs):
        with tf.GradientTape() as tape:
            outputs, _ = layer(inputs, **CALLS[layer_class])
        return tape.gradient(outputs, layer.trainable_variables)

    report = profile(gradient, tf.TensorSpec(INPUTS.shape))
    calls = [one for one in report.model.program.compute_sets if one.body is not None]
    found = {one.backward: one.ops[-1].attributes["memory_proportion"] for one in calls}
    assert found == {False: 0.005, True: 0.5}
    assert {one.family for one in calls} == {layer_class.__name__}


@LAYERS
def test_is_one_operation_of_its_name(layer_class):
    layer = built(layer_class)

    @tf.function
    def run(inputs):
        with tf.GradientTape() as tape:
            outputs, _ = layer(inputs, **CALLS[layer_class])
        return tape.gradient(outputs, layer.trainable_variables)

    graph = run.get_concrete_function(tf.TensorSpec(INPUTS.shape)).graph
    names = [operation.name for operation in graph.get_operations()]
    marker = f"{layer.name}/poplar.{layer_class.__name__}/"
    assert any(name.startswith(f"{marker}while") for name in names)
    assert any(name.startswith(f"gradient_tape/{marker}while") for name in names)

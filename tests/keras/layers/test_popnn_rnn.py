"""Popnn's Keras layers against Keras's own, given the same weights, in all modes."""

import doctest
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from recurrent_sequences import step_mask
from said import said

from ipu_keras import profile
from ipu_keras.keras.layers import GRU, LSTM, PopnnGRU, PopnnLSTM, popnn_gru, popnn_lstm
from ipu_keras.keras.layers.popnn_rnn import UnsupportedArgumentError
from ipu_keras.ops import rnn_ops

BATCH, TIME, FEATURES, UNITS = 3, 5, 2, 4
LAYERS = {
    "lstm": (keras.layers.LSTM, PopnnLSTM, {}),
    "gru": (keras.layers.GRU, PopnnGRU, {}),
    "gru, reset before": (keras.layers.GRU, PopnnGRU, {"reset_after": False}),
}
KINDS = pytest.mark.parametrize("kind", LAYERS)


def sequences(*shape, seed=0):
    shape = shape or (BATCH, TIME, FEATURES)
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float32)


def initial_state(kind):
    count = 2 if kind == "lstm" else 1
    return [sequences(BATCH, UNITS, seed=seed) for seed in range(1, 1 + count)]


def pair(kind, *, input_shape=(BATCH, TIME, FEATURES), **arguments):
    """Keras's layer and ours, with equal weights of which no bias is zero."""
    stock_class, our_class, options = LAYERS[kind]
    stock = stock_class(UNITS, **options, **arguments)
    ours = our_class(UNITS, **options, **arguments)
    random = np.random.default_rng(5)
    for layer in (stock, ours):
        layer.build(input_shape)
    stock.set_weights([random.normal(size=w.shape) / 2 for w in stock.get_weights()])
    ours.set_weights(stock.get_weights())
    return stock, ours


def weighted_sum(results):
    """A number that depends on each result differently."""
    random = np.random.default_rng(7)
    return tf.add_n(
        [
            tf.reduce_sum(random.normal(size=part.shape).astype("f") * part)
            for part in keras.tree.flatten(results)
        ]
    )


def results_and_gradients(layer, inputs, **call_arguments):
    """What the layer returns, and gradients by the inputs, its weights and the initial state."""
    sources = [
        inputs,
        *[weight.value for weight in layer.trainable_weights],
        *keras.tree.flatten(call_arguments.get("initial_state", [])),
    ]

    with tf.GradientTape() as tape:
        tape.watch(sources)
        results = layer(inputs, **call_arguments)
        total = weighted_sum(results)
    return results, tape.gradient(total, sources)


def assert_equal(actual, expected, tolerance=1e-5):
    keras.tree.assert_same_structure(actual, expected)
    for one, other in zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def assert_same(kind, arguments=None, **call_arguments):
    stock, ours = pair(kind, **(arguments or {}))
    inputs = sequences()
    expected = results_and_gradients(stock, inputs, **call_arguments)
    actual = results_and_gradients(ours, inputs, **call_arguments)
    keras.tree.assert_same_structure(tuple(actual[0]), tuple(expected[0]))
    assert_equal(actual, expected)
    # Without a gradient to come, another program runs.
    assert_equal(ours(inputs, **call_arguments), stock(inputs, **call_arguments))


@pytest.mark.parametrize("module", [popnn_lstm, popnn_gru])
def test_examples_in_the_docstrings(module):
    assert doctest.testmod(module).failed == 0


def test_aliases():
    assert LSTM is PopnnLSTM
    assert GRU is PopnnGRU


@pytest.mark.parametrize("return_state", [False, True])
@pytest.mark.parametrize("return_sequences", [False, True])
@KINDS
def test_same_as_keras(kind, return_sequences, return_state):
    arguments = {"return_sequences": return_sequences, "return_state": return_state}
    assert_same(kind, arguments)


@pytest.mark.parametrize("return_sequences", [False, True])
@pytest.mark.parametrize("given", [False, True])
@KINDS
def test_same_as_keras_with_a_mask(kind, given, return_sequences):
    mask = step_mask(TIME, BATCH).T
    mask[2] = False
    state = {"initial_state": initial_state(kind)} if given else {}
    arguments = {"return_sequences": return_sequences, "return_state": True}
    assert_same(kind, arguments, mask=tf.constant(mask), **state)


@KINDS
def test_same_as_keras_with_an_initial_state(kind):
    assert_same(kind, {"return_state": True}, initial_state=initial_state(kind))


@KINDS
def test_same_as_keras_without_bias(kind):
    assert_same(kind, {"use_bias": False})


@pytest.mark.parametrize(
    ("activation", "recurrent_activation"),
    [("relu", "sigmoid"), ("softmax", "softmax"), ("sigmoid", "tanh"), (None, None)],
)
@KINDS
def test_same_as_keras_with_activations(kind, activation, recurrent_activation):
    # A state without any activation soon is large.
    options = {"activation": activation, "recurrent_activation": recurrent_activation}
    stock, ours = pair(kind, **options)
    weights = [weight / 4 for weight in stock.get_weights()]
    results = []
    for layer in (ours, stock):
        layer.set_weights(weights)
        results.append(results_and_gradients(layer, sequences()))
    assert_equal(*results)


@KINDS
def test_hard_sigmoid_is_that_of_popnn(kind):
    """Zero at -2.5, where Keras 3 has one that is zero at -3."""
    stock, ours = pair(kind, recurrent_activation="hard_sigmoid")
    layer = LAYERS[kind][0](
        UNITS,
        **LAYERS[kind][2],
        recurrent_activation=lambda x: keras.ops.clip(x * 0.2 + 0.5, 0, 1),
    )
    layer.build((BATCH, TIME, FEATURES))
    layer.set_weights(stock.get_weights())
    inputs = sequences() * 3
    expected = results_and_gradients(layer, inputs)
    assert_equal(results_and_gradients(ours, inputs), expected)


@KINDS
def test_one_step(kind):
    stock, ours = pair(kind)
    inputs = sequences(BATCH, 1, FEATURES)
    assert_equal(results_and_gradients(ours, inputs), results_and_gradients(stock, inputs))


@KINDS
def test_no_step_leaves_the_state(kind):
    _, ours = pair(kind, return_state=True, return_sequences=True)
    state = initial_state(kind)
    outputs, *last = ours(tf.zeros((BATCH, 0, FEATURES)), initial_state=state)
    assert outputs.shape == (BATCH, 0, UNITS)
    assert_equal(last, state)


@KINDS
def test_time_major(kind):
    stock, _ = pair(kind, return_sequences=True, return_state=True)
    layer = LAYERS[kind][1](
        UNITS, time_major=True, return_sequences=True, return_state=True, **LAYERS[kind][2]
    )
    layer.build((TIME, BATCH, FEATURES))
    layer.set_weights(stock.get_weights())
    mask = step_mask(TIME, BATCH)
    outputs, *state = layer(tf.transpose(sequences(), [1, 0, 2]), mask=tf.constant(mask))
    expected = stock(sequences(), mask=tf.constant(mask.T))
    assert_equal([tf.transpose(outputs, [1, 0, 2]), *state], list(expected))
    shapes = layer.compute_output_shape((TIME, BATCH, FEATURES))
    assert shapes == ((TIME, BATCH, UNITS), *[(BATCH, UNITS)] * len(state))
    layer = LAYERS[kind][1](UNITS, time_major=True)
    assert layer.compute_output_shape((TIME, BATCH, FEATURES)) == (BATCH, UNITS)


@KINDS
def test_stateful(kind):
    stock, ours = pair(kind, stateful=True)
    assert len(ours.weights) == 3
    for seed in range(3):
        assert_equal(ours(sequences(seed=seed)), stock(sequences(seed=seed)))
    assert_equal(
        [state.value for state in ours.states],
        [state.value for state in stock.states],
    )
    first = ours(sequences())
    ours.reset_states()
    assert_equal([state.numpy() for state in ours.states], [0 * s.numpy() for s in ours.states])
    assert np.abs(first - ours(sequences())).max() > 1e-3


def test_stateful_needs_a_batch_size():
    with pytest.raises(ValueError, match="needs a batch size that is known"):
        PopnnLSTM(4, stateful=True)(keras.Input((5, 2)))
    layer = PopnnLSTM(4, stateful=True)
    layer(sequences())
    with pytest.raises(ValueError, match="inputs of batch size 2"):
        layer(sequences(2, TIME, FEATURES))


@KINDS
def test_mixed_precision(kind):
    stock, ours = pair(kind, dtype="mixed_float16", return_sequences=True)
    assert ours(sequences()).dtype == tf.float16
    for results in zip(
        results_and_gradients(ours, sequences()),
        results_and_gradients(stock, sequences()),
        strict=True,
    ):
        assert_equal(*results, tolerance=0.02)


def test_dropout_is_of_all_steps_alike():
    layer = PopnnGRU(UNITS, dropout=0.5, return_sequences=True)
    layer.build((64, TIME, FEATURES))
    # Nothing is recalled, and candidates follow the sign of the first feature.
    layer.set_weights([np.eye(2, 12, 8) * 9, np.zeros((UNITS, 12)), np.zeros((2, 12))])
    kept = layer(tf.ones((64, TIME, FEATURES)), training=True).numpy()[..., 0] != 0
    assert (kept == kept[:, :1]).all()
    assert 16 < kept[:, 0].sum() < 48
    assert layer(tf.ones((64, TIME, FEATURES))).numpy()[..., 0].all()


def test_dropout_seed():
    inputs = sequences()
    layers = [PopnnLSTM(UNITS, dropout=0.5, dropout_seed=seed) for seed in ((1, 2), (1, 2), (3, 4))]
    for layer in layers:
        layer.build(inputs.shape)
        layer.set_weights(layers[0].get_weights())
    same, again, other = (layer(inputs, training=True) for layer in layers)
    np.testing.assert_array_equal(same, again)
    np.testing.assert_array_equal(same, layers[0](inputs, training=True))
    assert np.abs(same - other).max() > 1e-3
    with pytest.raises(ValueError, match="must be two integers"):
        PopnnLSTM(4, dropout_seed=3)


def test_all_inputs_dropped():
    layer = PopnnLSTM(UNITS, dropout=1.0)
    np.testing.assert_array_equal(
        layer(sequences(), training=True), layer(0 * sequences(), training=True)
    )


def test_initial_weights():
    layers = [PopnnLSTM(UNITS, seed=3), PopnnLSTM(UNITS, seed=3), PopnnLSTM(UNITS)]
    for layer in layers:
        layer.build((BATCH, TIME, FEATURES))
    one, other, unseeded = (layer.get_weights() for layer in layers)
    assert_equal(one, other)
    assert np.abs(one[0] - unseeded[0]).max() > 1e-3
    np.testing.assert_array_equal(one[2], [0] * 4 + [1] * 4 + [0] * 8)
    layer = PopnnLSTM(UNITS, unit_forget_bias=False, bias_initializer="ones")
    layer.build((BATCH, TIME, FEATURES))
    np.testing.assert_array_equal(layer.get_weights()[2], np.ones(16))


@pytest.mark.parametrize("layer_class", [PopnnLSTM, PopnnGRU])
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("kernel_regularizer", "l2"),
        ("recurrent_regularizer", "l2"),
        ("bias_regularizer", "l2"),
        ("activity_regularizer", "l2"),
        ("kernel_constraint", "max_norm"),
        ("recurrent_constraint", "max_norm"),
        ("bias_constraint", "max_norm"),
        ("recurrent_dropout", 0.5),
        ("implementation", 2),
        ("go_backwards", True),
        ("unroll", True),
    ],
)
def test_unsupported_arguments(layer_class, argument, value):
    kind = layer_class.__name__.removeprefix("Popnn")
    with pytest.raises(UnsupportedArgumentError) as caught:
        layer_class(4, **{argument: value})
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, NotImplementedError)
    assert str(caught.value) == f"IPU custom {kind} layer does not support {argument}."
    assert said(caught.value).endswith(f"Received: {argument}={value!r}")


@pytest.mark.parametrize("layer_class", [PopnnLSTM, PopnnGRU])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"activation": "selu"}, "IPU custom RNN layer does not support 'selu' as an activation"),
        ({"recurrent_activation": "relu"}, "Acceptable value are 'tanh', 'softmax'"),
        ({"units": 0}, "`units` must be a positive integer. Received: units=0"),
        ({"dropout": 1.5}, "`dropout` must be from 0 to 1. Received: dropout=1.5"),
        ({"partials_dtype": tf.int32}, "Received: partials_dtype=tf.int32"),
        ({"available_memory_proportion_fwd": 2}, "at most 1. Received"),
    ],
)
def test_wrong_arguments(layer_class, arguments, message):
    with pytest.raises(ValueError, match=message):
        layer_class(**{"units": 4, **arguments})


def test_wrong_shapes():
    with pytest.raises(ValueError, match="of which the last, the features, is known"):
        PopnnLSTM(4).build((3, 2))
    with pytest.raises(ValueError, match="of which the last, the features, is known"):
        PopnnGRU(4).build((3, 2, None))
    with pytest.raises(ValueError, match=r"here \(3, 4\). Received: initial_state of shape"):
        PopnnGRU(4)(sequences(), initial_state=tf.zeros((3, 5)))
    with pytest.raises(ValueError, match="must be 2 of shape"):
        PopnnLSTM(4)(sequences(), initial_state=[tf.zeros((3, 4))])


@pytest.mark.parametrize("layer_class", [PopnnLSTM, PopnnGRU])
def test_memory_proportions_decide_how_products_are_planned(layer_class):
    def costs(**shares):
        layer = layer_class(512, **shares)

        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.reduce_sum(layer(x))
            return tape.gradient(total, x)

        model = profile(gradient, tf.TensorSpec((64, 4, 512))).model
        pairs = zip(model.program.compute_sets, model.costs, strict=True)
        return {one.backward: cost for one, cost in pairs if one.family == layer_class.__name__}

    plain = costs()
    forward = costs(available_memory_proportion_fwd=0.002)
    backward = costs(available_memory_proportion_bwd=0.002)
    assert set(plain) == {False, True}
    assert forward[False].cycles > plain[False].cycles
    assert forward[True] == plain[True]
    assert backward[True].cycles > plain[True].cycles
    assert backward[False] == plain[False]


def test_activations_by_function():
    layer = PopnnLSTM(
        4, activation=keras.activations.relu, recurrent_activation=keras.activations.sigmoid
    )
    assert (layer.activation, layer.recurrent_activation) == ("relu", "sigmoid")


def test_state_shapes():
    assert PopnnLSTM(4).state_shape(3) == ([3, 4], [3, 4])
    assert PopnnGRU(4).state_shape(3) == [3, 4]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_named_state_keeps_its_meaning_in_a_file(tmp_path):
    """A model's file knows no names of tuples."""
    h, c = initial_state("lstm")
    inputs = [keras.Input((TIME, FEATURES)), keras.Input((UNITS,)), keras.Input((UNITS,))]
    state = rnn_ops.LSTMStateTuple(h=inputs[1], c=inputs[2])
    layer = PopnnLSTM(UNITS)
    model = keras.Model(inputs, layer(inputs[0], initial_state=state))
    expected = layer(sequences(), initial_state=[h, c])
    assert_equal(model([sequences(), h, c]), expected)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_equal(loaded([sequences(), h, c]), expected)


def test_masks_of_layers_before_reach_layers_behind():
    words = np.array([[4, 1, 0, 0], [2, 2, 3, 0]])
    embedding = keras.layers.Embedding(5, FEATURES, mask_zero=True)
    stack = [PopnnGRU(UNITS, return_sequences=True), PopnnLSTM(UNITS)]
    embedded = embedding(words)
    outputs = stack[1](stack[0](embedded))
    short = stack[1](stack[0](embedding(words[:1, :2])))
    np.testing.assert_allclose(outputs[:1], short, rtol=1e-5)


def test_unknown_batch_and_time_in_a_function():
    _, layer = pair("lstm")
    run = tf.function(layer, input_signature=[tf.TensorSpec([None, None, FEATURES])])
    assert_equal(run(sequences()), layer(sequences()))
    assert_equal(run(sequences()[:2, :3]), layer(sequences()[:2, :3]))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_fit_on_the_ipu_is_that_of_keras(kind, twins):
    stock_class, our_class, _ = LAYERS[kind]

    def build(layer_class):
        return keras.Sequential(
            [
                keras.Input((TIME, FEATURES), batch_size=8),
                layer_class(UNITS, stateful=True),
                keras.layers.Dense(1),
            ]
        )

    stock, _ = twins(functools.partial(build, stock_class))
    _, model = twins(functools.partial(build, our_class))
    model.set_weights(stock.get_weights())
    random = np.random.default_rng(1)
    x = random.normal(size=(32, TIME, FEATURES)).astype("f")
    y = random.normal(size=(32, 1)).astype("f")
    losses = []
    for each in (stock, model):
        each.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=2)
        history = each.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        losses.append(history.history["loss"])
    assert_equal(losses[1], losses[0])
    assert_equal(model.get_weights(), stock.get_weights())
    assert_equal(
        model.predict(x, batch_size=8, verbose=0), stock.predict(x, batch_size=8, verbose=0)
    )
    assert {weight.value.device.rpartition(":")[2] for weight in model.weights} == {"0"}
    assert all("IPU" in state.value.device for state in model.layers[0].states)

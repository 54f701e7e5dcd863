"""EffectiveTransformer: against plain attention on padded batches, and what it costs."""

import doctest
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from differences import jacobians

from ipu_addons.keras.layers import EffectiveTransformer, effective_transformer
from ipu_keras.config import reset_ipu_configuration
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras.model_profile import profile

# Full, empty and short sequences; row 2 has nothing to attend to.
FROM_LENGTHS = np.array([5, 0, 1, 3, 5, 2, 4], np.int32)
TO_LENGTHS = np.array([4, 2, 0, 1, 4, 4, 3], np.int32)


def inputs_of(dtype=np.float32, batch=7):
    random = np.random.default_rng(0)
    from_sequences = random.standard_normal((batch, 5, 3)).astype(dtype)
    to_sequences = random.standard_normal((batch, 4, 2)).astype(dtype)
    return [from_sequences, FROM_LENGTHS[:batch], to_sequences, TO_LENGTHS[:batch]]


def weights_of(layer):
    """By name, with random values that were set: biases and scale count too."""
    random = np.random.default_rng(1)
    for weight in layer.trainable_weights:
        weight.assign(random.standard_normal(weight.shape))
    return {weight.name: weight.numpy().astype(np.float64) for weight in layer.weights}


def plain_attention(layer, weights, inputs, mask=None):
    """Outputs of all sequences and context of all places, in float64."""
    x, x_lengths, t, t_lengths = inputs
    shape = (layer.num_attention_heads, layer.attention_head_size)

    def heads(name, sequences):
        dense = sequences @ weights[f"{name}_kernel"] + weights[f"{name}_bias"]
        return np.asarray(layer.qkv_activation(dense)).reshape(*sequences.shape[:2], *shape)

    query, key, value = heads("query", x), heads("key", t), heads("value", t)
    scores = np.einsum("bfhd,bthd->bhft", query, key) / math.sqrt(shape[1])
    scores = np.exp(scores * weights.get("scale", 1))
    scores *= (np.arange(t.shape[1]) < t_lengths[:, None])[:, None, None]
    sums = scores.sum(axis=-1, keepdims=True)
    found = np.einsum("bhft,bthd->bfhd", scores / np.where(sums == 0, 1, sums), value)
    if mask is not None:
        found = found * mask[..., None]
    context = found.reshape(*x.shape[:2], -1)
    context = context * (np.arange(x.shape[1]) < x_lengths[:, None])[..., None]
    outputs = context.reshape(len(x), -1) @ weights["output_kernel"] + weights["output_bias"]
    outputs = np.asarray(layer.output_activation(outputs))
    if layer.layer_norm_output:
        centred = outputs - outputs.mean(axis=-1, keepdims=True)
        outputs = centred / np.sqrt(outputs.var(axis=-1, keepdims=True) + 1e-3)
        outputs = outputs * weights["gamma"] + weights["beta"]
    return [outputs, context.reshape(-1, context.shape[2])]


def assert_close(found, expected, **tolerances):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, **tolerances)


def build(layer, inputs):
    layer.build([tensor.shape for tensor in inputs])
    return weights_of(layer)


@pytest.fixture
def strategy():
    reset_ipu_configuration()
    yield IPUStrategy()
    reset_ipu_configuration()


def test_example_in_the_docstring():
    assert doctest.testmod(effective_transformer).failed == 0


def test_by_hand():
    """One head of size 1, all kernels 1: the mean of 1 and 3, weighted by exp(1) and exp(3)."""
    layer = EffectiveTransformer(1, 1, embedding_initializer="ones", output_initializer="ones")
    one, two = tf.constant([1]), tf.constant([2])
    results = layer([tf.ones((1, 1)), one, tf.constant([[1.0, 3.0, 9.0]]), two])
    # (1 e^1 + 3 e^3) / (e^1 + e^3)
    assert_close(results, [[[2.7615942]]] * 2, rtol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(("rows", "per_iteration"), [(7, 7), (7, 2), (3, 1), (16, 16)])
def test_values(rows, per_iteration, jit_compile):
    """Of one iteration; of several, as tokens do not fit; in groups of rows; of few rows."""
    layer = EffectiveTransformer(
        6, rows, use_scale=True, num_attention_heads=2, sequences_per_iter=per_iteration
    )
    inputs = inputs_of()
    expected = plain_attention(layer, build(layer, inputs), inputs)
    outputs = tf.function(layer.__call__, jit_compile=jit_compile)(list(map(tf.constant, inputs)))
    assert_close(outputs, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mask_shape", [(7, 2), (7, 5, 2)])
def test_all_options(mask_shape):
    layer = EffectiveTransformer(
        6,
        7,
        num_attention_heads=2,
        attention_head_size=4,
        sequences_per_iter=3,
        qkv_activation="tanh",
        output_activation="relu",
        layer_norm_output=True,
    )
    inputs = inputs_of()
    mask = np.random.default_rng(2).uniform(size=mask_shape).astype(np.float32)
    weights = build(layer, [*inputs, mask])
    by_query = mask if mask.ndim == 3 else mask[:, None]
    expected = plain_attention(layer, weights, inputs, by_query)
    assert_close(layer([*inputs, mask]), expected, rtol=1e-4, atol=1e-4)


def test_gradients():
    """Of the sequences and all weights, against differences, in two iterations."""
    layer = EffectiveTransformer(2, 3, sequences_per_iter=1, dtype="float64")
    inputs = inputs_of(np.float64, batch=3)
    build(layer, inputs)
    names = [weight.name for weight in layer.trainable_weights]

    def run(x, t, *weights):
        with keras.StatelessScope(list(zip(layer.trainable_weights, weights, strict=True))):
            return tf.concat(
                [tf.reshape(each, [-1]) for each in layer([x, inputs[1], t, inputs[3]])], 0
            )

    tensors = [tf.constant(inputs[0]), tf.constant(inputs[2])]
    tensors += [tf.constant(weight.numpy()) for weight in layer.trainable_weights]
    theoretical, numerical = jacobians(tf.function(run), tensors, 1e-3)
    for name, ours, expected in zip(["x", "t", *names], theoretical, numerical, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5, err_msg=name)


def test_mixed_precision():
    layer = EffectiveTransformer(6, 7, sequences_per_iter=4, dtype="mixed_float16")
    inputs = inputs_of()
    expected = plain_attention(layer, build(layer, inputs), inputs)
    outputs = layer(list(map(tf.constant, inputs)))
    assert [each.dtype for each in outputs] == [tf.float16] * 2
    assert {weight.dtype for weight in layer.weights} == {"float32"}
    assert_close(outputs, expected, rtol=0.02, atol=0.05)


def test_dropout():
    options = {"attention_dropout_prob": 0.5, "output_dropout_prob": 0.5, "sequences_per_iter": 2}
    keras.utils.set_random_seed(0)
    layer = EffectiveTransformer(64, 7, **options)
    inputs = inputs_of()
    expected = plain_attention(layer, build(layer, inputs), inputs)
    assert_close(layer(inputs, training=False), expected, rtol=1e-3, atol=1e-3)
    first, second = layer(inputs)[0].numpy(), layer(inputs)[0].numpy()
    assert np.mean(first == 0) == pytest.approx(0.5, abs=0.1)
    assert np.any(first != second)
    # The gradient computes the same mask once more: none flows where an output was dropped.
    with tf.GradientTape() as tape:
        outputs, _ = layer(inputs)
        loss = tf.reduce_sum(outputs)
    gradient = tape.gradient(loss, layer._parameters["output_bias"].value)
    np.testing.assert_allclose(gradient, 2 * np.sum(outputs.numpy() != 0, axis=0))


def functional(**options):
    shapes = [((5, 3), "float32"), ((), "int32"), ((4, 2), "float32"), ((), "int32")]
    inputs = [keras.Input(shape, dtype=dtype) for shape, dtype in shapes]
    outputs, _ = EffectiveTransformer(6, 4, **options)(inputs)
    return keras.Model(inputs, keras.layers.Dense(1)(outputs))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_models_on_the_ipu(strategy, tmp_path):
    inputs = [np.concatenate([tensor] * 8)[:48] for tensor in inputs_of()]
    labels = inputs[0].sum(axis=(1, 2), keepdims=False)[:, None] * 0.1
    with strategy.scope():
        model = functional(num_attention_heads=2, sequences_per_iter=2)
        model.compile("adam", "mse", steps_per_execution=2)
        losses = model.fit(inputs, labels, batch_size=8, epochs=4, verbose=0).history["loss"]
        assert losses[-1] < losses[0]
        predicted = model.predict(inputs, batch_size=8, verbose=0)
        model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(inputs, verbose=0), predicted, rtol=1e-4, atol=1e-5)


def test_serialization():
    layer = EffectiveTransformer(
        6,
        8,
        True,
        2,
        4,
        3,
        qkv_activation="tanh",
        attention_dropout_prob=0.1,
        output_activation="relu",
        output_dropout_prob=0.2,
        layer_norm_output=True,
        embedding_initializer="he_normal",
        embedding_bias_initializer="ones",
        output_initializer="zeros",
        output_bias_initializer="ones",
    )
    serialized = keras.saving.serialize_keras_object(layer)
    assert serialized["registered_name"] == "ipu_addons>EffectiveTransformer"
    again = keras.saving.deserialize_keras_object(serialized)
    assert again.get_config() == layer.get_config()
    shapes = [(2, 5, 3), (2,), (2, 4, 3), (2,)]
    again.build(shapes)
    assert again.compute_output_shape(shapes) == ((2, 6), (10, 8))
    np.testing.assert_array_equal(again._parameters["key_bias"], np.ones(8))


# -- what it costs ------------------------------------------------------------


SIZE = 256


def report_of(sequences_per_iter, length=64):
    layer = EffectiveTransformer(SIZE, 16, sequences_per_iter=sequences_per_iter)
    layer.build([(16, length, SIZE), (16,), (16, length, SIZE), (16,)])
    return profile(
        lambda x, lengths: layer([x, lengths, x, lengths]),
        tf.TensorSpec((16, length, SIZE)),
        tf.TensorSpec((16,), tf.int32),
    )


def flops_of_products(report):
    return sum(
        one.flops * one.repeat for one in report.model.program.compute_sets if one.family == "dot"
    )


def dense_flops(num_tokens):
    """Of queries, keys and values: three layers of SIZE x SIZE."""
    return 3 * 2 * num_tokens * SIZE * SIZE


def padded_flops(length):
    """Of scores, what they weight, and the output: of all rows with their padding."""
    return 2 * 16 * length * SIZE * (2 * length + SIZE)


def test_cost_grows_with_tokens():
    reports = {count: report_of(count) for count in (16, 8, 4)}
    for count, report in reports.items():
        assert flops_of_products(report) == dense_flops(count * 64) + padded_flops(64)
        # How many iterations there are depends on data; one is counted.
        assert report.model.program.num_unknown_loops == (0 if count == 16 else 1)
    cycles = {count: report.cycles_per_step for count, report in reports.items()}
    assert cycles[4] < cycles[8] < cycles[16]


def test_cost_does_not_grow_with_padding():
    """As many tokens, in rows twice as long: only the attention and the output take more."""
    for count, length in ((16, 32), (8, 64)):
        expected = dense_flops(16 * 32) + padded_flops(length)
        assert flops_of_products(report_of(count, length)) == expected


# -- what is refused ----------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "options"),
    [
        (r"`max_batch_size` must be a positive.*max_batch_size=0", {"max_batch_size": 0}),
        ("`output_layer_size` must be", {"output_layer_size": 1.5}),
        (r"`output_layer_size` must be .*='8'", {"output_layer_size": "8"}),
        (r"`max_batch_size` must be .*=None", {"max_batch_size": None}),
        (r"`attention_dropout_prob` must be .*=nan", {"attention_dropout_prob": float("nan")}),
        (r"`output_dropout_prob` must be .*='0.1'", {"output_dropout_prob": "0.1"}),
        ("`num_attention_heads` must be", {"num_attention_heads": 0}),
        ("`attention_head_size` must be", {"num_attention_heads": 9}),
        (
            "`sequences_per_iter` must be less than or equal to `max_batch_size`.*=5.*=4",
            {"sequences_per_iter": 5},
        ),
        (r"`attention_dropout_prob` must be in the range \[0, 1\)", {"attention_dropout_prob": 1}),
        (r"`output_dropout_prob` must be.*=-0.1", {"output_dropout_prob": -0.1}),
    ],
)
def test_arguments_out_of_range(message, options):
    with pytest.raises(ValueError, match=message):
        EffectiveTransformer(**{"output_layer_size": 8, "max_batch_size": 4, **options})


@pytest.mark.parametrize(
    ("message", "shapes"),
    [
        (r"must be a list of from sequences", [(2, 3), (2,)]),
        (r"must be a list of from sequences", (2, 3, 4)),
        (r"must be a list of from sequences", [(2, 3, 4, 5), (2,), (2, 3), (2,)]),
        (r"must be a list of from sequences", [(2, 3), (2,), (2, 3), (2,), (2, 1), (2, 1)]),
        (r"padded to a fixed length.*None", [(2, None, 3), (2,), (2, 4, 3), (2,)]),
        (r"`from_sequence_lengths` in .*\(3,\)", [(2, 5, 3), (3,), (2, 4, 3), (2,)]),
        (r"`from_sequence_lengths` in .*\(2, 2\)", [(2, 5, 3), (2, 2), (2, 4, 3), (2,)]),
        (r"`to_sequences` in .*\(3, 4, 3\)", [(2, 5, 3), (2,), (3, 4, 3), (2,)]),
        (r"`to_sequence_lengths` in .*\(\)", [(2, 5, 3), (2,), (2, 4, 3), ()]),
        (r"`q_mask` in .*1 heads", [(2, 5, 3), (2,), (2, 4, 3), (2,), (2, 3)]),
        (r"`q_mask` in .*", [(2, 5, 3), (2,), (2, 4, 3), (2,), (2, 4, 1)]),
        (r"`q_mask` in .*", [(2, 5, 3), (2,), (2, 4, 3), (2,), (2,)]),
    ],
)
def test_inputs_of_other_shapes(message, shapes):
    with pytest.raises(ValueError, match=message):
        EffectiveTransformer(8, 4).build(shapes)


def test_shapes_are_checked_at_each_call():
    layer = EffectiveTransformer(8, 4)
    x, lengths = tf.ones((2, 5, 3)), tf.constant([1, 2])
    layer([x, lengths, x, lengths])
    with pytest.raises(ValueError, match=r"`to_sequence_lengths` in `inputs` must belong to the 2"):
        layer([x, lengths, x, tf.constant([1, 2, 3])])


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, tf.ones((2, 5, 3), tf.int32), "`from_sequences` .* floating point .* tensor of int32"),
        (1, tf.ones(2), "`from_sequence_lengths` .* integers.* a tensor of float32"),
        (2, tf.fill((2, 5, 3), "a"), "`to_sequences` .* floating point .* a tensor of string"),
        (3, tf.ones(2, tf.bool), "`to_sequence_lengths` .* integers.* a tensor of bool"),
        (4, tf.fill((2, 1), "a"), "`q_mask` .* numbers.* a tensor of string"),
    ],
)
def test_inputs_of_other_types(position, value, message):
    x, lengths = tf.ones((2, 5, 3)), tf.constant([1, 2])
    inputs = [x, lengths, x, lengths, tf.ones((2, 1))]
    inputs[position] = value
    with pytest.raises(TypeError, match=message):
        EffectiveTransformer(8, 4)(inputs)


@pytest.mark.parametrize("dtype", [tf.bool, tf.int32, tf.float16])
def test_masks_of_any_numbers(dtype):
    layer = EffectiveTransformer(6, 7, num_attention_heads=2)
    inputs = inputs_of()
    mask = np.arange(14).reshape(7, 2) % 2
    expected = plain_attention(layer, build(layer, [*inputs, mask]), inputs, mask[:, None])
    assert_close(layer([*inputs, tf.cast(mask, dtype)]), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wide", [np.int64, np.uint8])
def test_lengths_of_any_integers(wide):
    layer = EffectiveTransformer(np.int64(6), np.int32(7))
    inputs = inputs_of()
    expected = plain_attention(layer, build(layer, inputs), inputs)
    x, x_lengths, t, t_lengths = inputs
    results = layer([x, x_lengths.astype(wide)[:, None], t, t_lengths.astype(wide)])
    assert_close(results, expected, rtol=1e-4, atol=1e-4)

"""Recurrent layers, attention, embeddings and losses of operations, of halves, beside NumPy."""

import functools

import keras
import numpy as np
import scipy.special as sp
import tensorflow as tf
from ctc_paths import probabilities_of_labels
from half_arithmetic import Halves, halves, once
from half_cases import Numbers, add, layer
from halves_of_layers import softmax
from halves_of_operations import product_of
from recurrent_sequences import gru_by_numpy, lstm_by_numpy

from ipu_keras.ops import recurrent
from ipu_keras.ops.embedding_ops import embedding_lookup
from ipu_keras.ops.nn_ops import ctc_loss_v2, ctc_loss_with_log_probs
from ipu_keras.ops.slicing_ops import sequence_slice

L = keras.layers
NUMBERS = Numbers()

# Recurrent layers: each step rounds its sums, gates and states.


def of_layer(function, num_states):
    """A formula for what a layer is given: sequences of batches first, and no state."""

    def computed(x, *weights):
        units = weights[1].shape[0]
        states = [np.zeros_like(x, shape=(len(x), units))] * num_states
        found = function(np.swapaxes(x, 0, 1), *states, *weights)
        return np.swapaxes(found, 0, 1)

    return computed


def lstm(*given, **options):
    return lstm_by_numpy(*given, **options)[0]


def simple_rnn(x, kernel, recurrent_kernel, bias):
    state, found = 0, []
    for time in range(x.shape[1]):
        before = x[:, time] @ kernel + bias
        state = np.tanh(before if time == 0 else before + state @ recurrent_kernel)
        found.append(state)
    return np.stack(found, 1)


def lstm_of_cells(x, kernel, recurrent_kernel, bias):
    """Keras's own cell, which adds the bias last."""
    h = c = np.zeros_like(x, shape=(len(x), len(recurrent_kernel)))
    found = []
    for time in range(x.shape[1]):
        gates = x[:, time] @ kernel + h @ recurrent_kernel + bias
        i, f, g, o = np.split(gates, 4, axis=-1)
        c = sp.expit(f) * c + sp.expit(i) * np.tanh(g)
        h = sp.expit(o) * np.tanh(c)
        found.append(h)
    return np.stack(found, 1)


TIMES, BATCH, FEATURES, UNITS = 4, 2, 3, 3
SEQUENCES, STATE = (TIMES, BATCH, FEATURES), (BATCH, UNITS)
INPUTS = BATCH, TIMES, FEATURES
OF_LSTM = [(FEATURES, 4 * UNITS), (UNITS, 4 * UNITS), (4 * UNITS,)]
OF_GRU = [(FEATURES, 3 * UNITS), (UNITS, 3 * UNITS), (3 * UNITS,)]
MASK = np.bool_([[1, 1], [1, 0], [0, 1], [1, 1]])
HARD = {"activation": "relu", "recurrent_activation": "hard_sigmoid"}
RECURRENT = {
    "lstm": (lambda *t: recurrent.lstm(*t)[0], lstm, [SEQUENCES, STATE, STATE, *OF_LSTM]),
    "lstm, masked": (
        lambda *t: recurrent.lstm(*t, mask=MASK)[0],
        functools.partial(lstm, mask=MASK),
        [SEQUENCES, STATE, STATE, *OF_LSTM],
    ),
    "lstm, hard": (
        lambda *t: recurrent.lstm(*t, **HARD)[0],
        functools.partial(lstm, **HARD),
        [SEQUENCES, STATE, STATE, *OF_LSTM],
    ),
    "gru": (recurrent.gru, gru_by_numpy, [SEQUENCES, STATE, *OF_GRU[:2], (2, 3 * UNITS)]),
    "gru, reset before": (
        lambda *t: recurrent.gru(*t, reset_after=False),
        functools.partial(gru_by_numpy, reset_after=False),
        [SEQUENCES, STATE, *OF_GRU],
    ),
    "gru, masked": (
        lambda *t: recurrent.gru(*t, reset_after=False, mask=MASK),
        functools.partial(gru_by_numpy, reset_after=False, mask=MASK),
        [SEQUENCES, STATE, *OF_GRU],
    ),
    "gru with attention": (
        lambda *t: recurrent.gru(*t, reset_after=False),
        functools.partial(gru_by_numpy, reset_after=False),
        [SEQUENCES, STATE, *OF_GRU, (TIMES, BATCH)],
    ),
    "SimpleRNN": (
        layer(lambda **d: L.SimpleRNN(UNITS, return_sequences=True, **d)),
        simple_rnn,
        [INPUTS, (FEATURES, UNITS), (UNITS, UNITS), (UNITS,)],
    ),
    "LSTM": (
        layer(lambda **d: L.LSTM(UNITS, return_sequences=True, **d)),
        of_layer(lstm, 2),
        [INPUTS, *OF_LSTM],
    ),
    "LSTM, unrolled": (
        layer(lambda **d: L.LSTM(UNITS, return_sequences=True, unroll=True, **d)),
        lstm_of_cells,
        [INPUTS, *OF_LSTM],
    ),
    "GRU": (
        layer(lambda **d: L.GRU(UNITS, return_sequences=True, reset_after=False, **d)),
        of_layer(functools.partial(gru_by_numpy, reset_after=False), 1),
        [INPUTS, *OF_GRU],
    ),
}
for name, (compute, value, shapes) in RECURRENT.items():
    given = tuple(NUMBERS.usual(*shape) for shape in shapes)
    large = given[0] * np.float16(8), *given[1:]
    # Each step rounds several times, and the steps before it by what comes back from it.
    # Gates of an LSTM are tangents, of whose float32 too little may be left for the least halves.
    add(
        "recurrent",
        name,
        compute,
        value,
        given,
        large,
        step=1e-5,
        ulps=2 if "lstm" in name.lower() else 1,
        # An attention's gradient is a sum of all that comes back by a gate.
        roundings=12 if "attention" in name else 8,
        in_xla="lstm" not in name.lower(),
        # A loop adds up gradients step by step, and a tape's all at once.
        eagerly=name not in ("SimpleRNN", "GRU"),
    )


# Attention, embeddings, and what moves rows.


def attention(query, value, key, factor=1):
    products = once(lambda q, k: np.einsum("bqd,bkd->bqk", q, k))(query, key)
    weights = once(softmax)(factor * products if factor != 1 else products)
    return once(lambda w, v: np.einsum("bqk,bkd->bqd", w, v))(weights, value)


def additive_attention(query, value, key, scale):
    scores = once(lambda x: np.sum(x, -1))(
        scale * np.tanh(query[:, :, np.newaxis] + key[:, np.newaxis])
    )
    return once(lambda w, v: np.einsum("bqk,bkd->bqd", w, v))(once(softmax)(scores), value)


def multi_head(x, of_query, of_key, of_value, of_result):
    into_heads = product_of("btc,chd->bthd")
    query, key, value = (into_heads(x, kernel) for kernel in (of_query, of_key, of_value))
    scores = product_of("bqhd,bkhd->bhqk")(query * (1 / np.sqrt(query.shape[-1])), key)
    found = product_of("bhqk,bkhd->bqhd")(once(softmax)(scores), value)
    return product_of("bqhd,hdc->bqc")(found, of_result)


class SelfAttention(keras.layers.MultiHeadAttention):
    """Attends to what it is called with."""

    def build(self, shape):
        super().build(shape, shape)

    def call(self, x):
        return super().call(x, x)


def ctc(time_major, weight=1):
    """Minus the logarithm of all paths' probabilities, one by one, for each sample."""
    probabilities = softmax(time_major)
    found = [
        probabilities_of_labels(probabilities[:length, sample], 0)[labels]
        for sample, (length, labels) in enumerate(zip((4, 3), ((1, 2), (2,)), strict=True))
    ]
    return -np.log(found)


LABEL_IDS, SAMPLED_IDS = np.int64([[3], [0]]), np.int64([1, 4, 2])
# How often each is expected among those that are sampled.
EXPECTED = np.float16([[0.5], [0.25]]), np.float16([0.75, 0.5, 0.125])


def sampled_logits(weights, biases, inputs):
    """Logits of the label of each sample, and then those of what was sampled."""
    labels = LABEL_IDS[:, 0]
    products = np.sum(weights[labels] * inputs, -1, keepdims=True)
    of_labels = products + biases[labels, np.newaxis] - np.log(halves_like(inputs, EXPECTED[0]))
    others = once(np.matmul)(inputs, weights[SAMPLED_IDS].T) + biases[SAMPLED_IDS]
    return np.concatenate([of_labels, others - np.log(halves_like(inputs, EXPECTED[1]))], -1)


def halves_like(inputs, counts):
    return halves(counts) if isinstance(inputs, Halves) else np.float64(counts)


def sampled_softmax(weights, biases, inputs):
    logits = sampled_logits(weights, biases, inputs)
    return once(lambda x: sp.logsumexp(x, -1) - x[:, 0])(logits)


def noise_contrastive(weights, biases, inputs):
    x = sampled_logits(weights, biases, inputs)
    labels = np.eye(4)[0]
    losses = np.maximum(x, 0) - x * labels + np.log1p(np.exp(-abs(x)))
    return np.sum(losses, -1)


def of_samples(loss):
    """Returns a loss of weights, biases and inputs, for labels and other classes by chance."""
    sampled = SAMPLED_IDS, *EXPECTED

    def computed(weights, biases, inputs):
        return loss(
            weights,
            biases,
            LABEL_IDS,
            inputs,
            num_sampled=len(SAMPLED_IDS),
            num_classes=5,
            sampled_values=tuple(map(tf.constant, sampled)),
            remove_accidental_hits=False,
        )

    return computed


def sparsemax_of_tensor(x):
    """Returns the nearest probabilities to each row, as Keras does, whose range of halves is none.

    TensorFlow has no `tf.range` of float16.
    """
    places = tf.cast(tf.range(1, x.shape[1] + 1), x.dtype)
    largest = tf.sort(x, direction="DESCENDING")
    has_part = 1 + places * largest > tf.cumsum(largest, 1)
    total = tf.reduce_sum(tf.where(has_part, largest, 0), 1, keepdims=True)
    num_parts = tf.reduce_sum(tf.cast(has_part, x.dtype), 1, keepdims=True)
    return tf.maximum(x - (total - 1) / num_parts, 0)


def sparsemax(x):
    largest = np.sort(x)[:, ::-1]
    sums = once(lambda y: np.cumsum(y, -1))(largest)
    has_part = 1 + np.arange(1, x.shape[1] + 1) * largest > sums
    total = np.sum(np.where(has_part, largest, 0), -1, keepdims=True)
    return np.maximum(x - (total - 1) / has_part.sum(-1, keepdims=True), 0)


IDS = np.int32([[0, 3], [3, 1]])
HEADS = [(4, 2, 4)] * 3 + [(2, 4, 4)]
MOVED = [2, 1], [2, 1], [1, 3]
# By name: what computes it, its formula, shapes, and roundings of gradients.
OTHERS = {
    "Attention": (layer(L.Attention, 3), attention, [(2, 3, 4), (2, 5, 4), (2, 5, 4)], 1),
    "AdditiveAttention": (
        layer(L.AdditiveAttention, 3),
        additive_attention,
        [(2, 3, 4), (2, 5, 4), (2, 5, 4), (4,)],
        4,
    ),
    "MultiHeadAttention": (
        layer(lambda **d: SelfAttention(2, 4, use_bias=False, **d)),
        multi_head,
        [(2, 3, 4), *HEADS],
        3,
    ),
    "Embedding": (
        functools.partial(layer(lambda **d: L.Embedding(5, 3, **d)), IDS),
        lambda table: table[IDS],
        [(5, 3)],
        0,
    ),
    "embedding_lookup": (
        lambda table: embedding_lookup(table, IDS),
        lambda table: table[IDS],
        [(5, 3)],
        0,
    ),
    "embedding_lookup in parts": (
        lambda table: embedding_lookup(table, IDS, serialization_factor=2),
        lambda table: table[IDS],
        [(6, 3)],
        0,
    ),
    "sequence_slice": (
        lambda to, of: sequence_slice(to, of, *MOVED, False),
        lambda to, of: np.stack([to[0], of[2], of[3], of[1], to[4]]),
        [(5, 3), (4, 3)],
        0,
    ),
    "ctc_loss_v2": (
        lambda x: ctc_loss_v2([[1, 2], [2, 0]], x, [2, 1], [4, 3], 0),
        once(ctc),
        [(4, 2, 3)],
        0,
    ),
    "ctc_loss_with_log_probs": (
        lambda x: ctc_loss_with_log_probs(
            [[1, 2], [2, 0]], tf.nn.log_softmax(x), [2, 1], [4, 3], 0
        ),
        lambda x: once(ctc)(once(lambda y: y - sp.logsumexp(y, -1, keepdims=True))(x)),
        [(4, 2, 3)],
        2,
    ),
    "softmax_cross_entropy": (
        lambda x: tf.nn.softmax_cross_entropy_with_logits([[0.25, 0.75, 0]] * 2, x),
        once(lambda x: sp.logsumexp(x, -1) - x @ [0.25, 0.75, 0]),
        [(2, 3)],
        1,
    ),
    "sparse_softmax_cross_entropy": (
        lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits([2, 0], x),
        once(lambda x: sp.logsumexp(x, -1) - x[[0, 1], [2, 0]]),
        [(2, 3)],
        1,
    ),
    "sigmoid_cross_entropy": (
        lambda x: tf.nn.sigmoid_cross_entropy_with_logits(tf.ones_like(x), x),
        lambda x: np.maximum(x, 0) - x + np.log1p(np.exp(-abs(x))),
        [(2, 3)],
        1,
    ),
    "sampled_softmax_loss": (
        of_samples(tf.nn.sampled_softmax_loss),
        sampled_softmax,
        [(5, 3), (5,), (2, 3)],
        3,
    ),
    "nce_loss": (of_samples(tf.nn.nce_loss), noise_contrastive, [(5, 3), (5,), (2, 3)], 3),
    "sparsemax": (sparsemax_of_tensor, sparsemax, [(4, 6)], 2),
    "PReLU": (
        layer(L.PReLU),
        lambda x, a: np.maximum(x, 0) + -a * np.maximum(-x, 0),
        [(4, 6), (6,)],
        1,
    ),
    "Rescaling": (
        layer(lambda **d: L.Rescaling(0.3, 0.7, **d)),
        lambda x: x * 0.3 + 0.7,
        [(4, 6)],
        0,
    ),
    "Multiply": (layer(L.Multiply, 2), np.multiply, [(4, 6), (4, 6)], 0),
    "Average": (layer(L.Average, 2), lambda a, b: (a + b) / 2, [(4, 6), (4, 6)], 0),
    "Dot": (
        layer(lambda **d: L.Dot(1, **d), 2),
        once(lambda a, b: np.sum(a * b, 1, keepdims=True)),
        [(4, 6), (4, 6)],
        0,
    ),
}
for name, (compute, value, shapes, roundings) in OTHERS.items():
    given = tuple(NUMBERS.usual(*shape) for shape in shapes)
    add("others", name, compute, value, given, step=1e-5, roundings=roundings)

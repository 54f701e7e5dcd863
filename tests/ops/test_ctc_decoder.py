"""The CTC beam search: against all paths one by one, and against a search with dictionaries."""

import doctest
import functools
import math

import numpy as np
import pytest
import tensorflow as tf
from ctc_paths import probabilities_of_labels, softmax
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_keras.ops import ctc_decoder as module
from ipu_keras.ops.ctc_decoder import (
    ctc_beam_search_decoder,
    ctc_beam_search_decoder_with_log_probs,
)


def search_with_dictionaries(probabilities, beam_width, blank):
    """The labels of each beam and their log probabilities, as the paper has it.

    Args:
        probabilities: `(time, classes)`.
        beam_width: Of the search.
        blank: Its class.
    """
    beams = {(): (0.0, -math.inf)}
    for log_probs in np.log(probabilities):
        found = {}

        def add(labels, after_blank, after_label, found=found):
            old = found.get(labels, (-math.inf, -math.inf))
            found[labels] = tuple(map(np.logaddexp, old, (after_blank, after_label)))

        for labels, (after_blank, after_label) in beams.items():
            score = np.logaddexp(after_blank, after_label)
            add(labels, score + log_probs[blank], -math.inf)
            for label in set(range(len(log_probs))) - {blank}:
                is_last = labels[-1:] == (label,)
                if is_last:
                    add(labels, -math.inf, after_label + log_probs[label])
                start = after_blank if is_last else score
                add((*labels, label), -math.inf, start + log_probs[label])
        ordered = sorted(found, key=lambda labels: -np.logaddexp(*found[labels]))
        beams = {labels: found[labels] for labels in ordered[:beam_width]}
    return [(labels, np.logaddexp(*scores)) for labels, scores in beams.items()]


def sequences_in(lengths, labels):
    """The label sequences of each path of one batch entry, whose padding must be right."""
    for length, row in zip(lengths.numpy(), labels.numpy(), strict=True):
        assert np.all(row[length:] == -1)
        yield tuple(row[:length].tolist())


def logits_of(time=10, batch=3, num_classes=4, seed=0, dtype=np.float32):
    random = np.random.default_rng(seed)
    return (2 * random.normal(size=(time, batch, num_classes))).astype(dtype)


@functools.cache
def traced(decoder=ctc_beam_search_decoder, jit_compile=False, **options):
    """A decoder that is traced once per shape."""
    return tf.function(
        lambda data, lengths: decoder(data, lengths, **options),
        autograph=False,
        jit_compile=jit_compile,
    )


def test_examples_in_the_docstrings():
    assert doctest.testmod(module).failed == 0


def test_golden():
    # Two steps: a, b and the blank - of the probabilities 0.5, 0.2, 0.3 and 0.1, 0.5, 0.4.
    # ab: 0.5 * 0.5. a: aa, a- and -a: 0.05 + 0.2 + 0.03. b: 0.1 + 0.08 + 0.15. ba: 0.02.
    # Nothing: 0.12.
    data = tf.math.log([[[0.5, 0.2, 0.3]], [[0.1, 0.5, 0.4]]])
    scores, lengths, labels = ctc_beam_search_decoder_with_log_probs(data, [2], 5, 5)
    np.testing.assert_allclose(np.exp(scores), [[0.33, 0.28, 0.25, 0.12, 0.02]], rtol=1e-5)
    np.testing.assert_array_equal(lengths, [[1, 1, 2, 0, 2]])
    np.testing.assert_array_equal(labels, [[[1, -1], [0, -1], [0, 1], [-1, -1], [1, 0]]])
    assert lengths.dtype == labels.dtype == tf.int32


def test_label_twice():
    # Only a blank in between makes two of a label that is emitted twice.
    logits = 9.0 * tf.one_hot([[1], [1], [2], [1]], 3)
    _, lengths, labels = ctc_beam_search_decoder(logits, [4], beam_width=4)
    assert list(sequences_in(lengths[0], labels[0])) == [(1, 1)]


@given(
    st.lists(st.floats(-3, 3, width=32), min_size=4 * 2 * 3, max_size=4 * 2 * 3),
    st.lists(st.integers(0, 4), min_size=2, max_size=2),
    st.sampled_from([(0, True), (1, False), (-1, True)]),
)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_against_all_paths(numbers, lengths, kind):
    # A beam for each of the 31 sequences of at most 4 labels of 2 classes; none is lost.
    blank, from_logits = kind
    logits = np.reshape(numbers, (4, 2, 3)).astype("float32")
    decoder = ctc_beam_search_decoder if from_logits else ctc_beam_search_decoder_with_log_probs
    data = logits if from_logits else np.log(softmax(logits)).astype("float32")
    options = {"beam_width": 32, "top_paths": 32, "blank_index": blank}
    scores, label_lengths, labels = traced(decoder, **options)(data, lengths)
    for batch, length in enumerate(lengths):
        expected = probabilities_of_labels(softmax(logits[:length, batch]), blank % 3)
        found = list(sequences_in(label_lengths[batch], labels[batch]))
        probabilities = np.exp(scores[batch].numpy())
        assert np.all(np.diff(probabilities) <= 0)
        count = len(expected)
        assert sorted(found[:count]) == sorted(expected)
        np.testing.assert_allclose(
            probabilities[:count], [expected[each] for each in found[:count]], rtol=1e-4
        )
        np.testing.assert_array_equal(scores[batch, count:], [-math.inf] * (32 - count))


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("beam_width", [1, 3, 8])
def test_narrow_beams(beam_width, jit_compile):
    # Long enough that sequences leave the beam and come back while their children are in it.
    batch = 12
    logits = logits_of(time=25, batch=batch)
    options = {"beam_width": beam_width, "top_paths": beam_width, "blank_index": 1}
    scores, lengths, labels = traced(jit_compile=jit_compile, **options)(logits, [25] * batch)
    for entry in range(batch):
        expected = search_with_dictionaries(softmax(logits[:, entry]), beam_width, 1)
        found = list(sequences_in(lengths[entry], labels[entry]))
        assert found == [sequence for sequence, _ in expected]
        np.testing.assert_allclose(scores[entry], [score for _, score in expected], rtol=1e-4)


def test_as_tensorflow():
    # TensorFlow's search differs from ours in narrow beams only.
    logits, lengths, options = logits_of(8, 4, 4), [8, 8, 5, 1], {"beam_width": 600}
    expected, log_probs = tf.nn.ctc_beam_search_decoder(logits, lengths, top_paths=3, **options)
    scores, label_lengths, labels = traced(top_paths=3, **options)(logits, lengths)
    np.testing.assert_allclose(scores, log_probs, rtol=1e-4)
    for path, sparse in enumerate(expected):
        dense = tf.sparse.to_dense(sparse, -1)
        width = dense.shape[1]
        np.testing.assert_array_equal(labels[:, path, :width], dense)
        np.testing.assert_array_equal(label_lengths[:, path], np.sum(dense.numpy() >= 0, axis=1))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_what_follows_after_the_end_is_ignored(jit_compile):
    decoder = traced(jit_compile=jit_compile, beam_width=5, top_paths=5)
    logits, lengths = logits_of(), [10, 4, 0]
    expected = decoder(logits, lengths)
    logits[4:, 1] = logits[:, 2] = np.nan
    for one, other in zip(decoder(logits, lengths), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(expected[0][2], [0.0] + [-math.inf] * 4)
    assert np.all(expected[1][2] == 0)
    assert np.all(expected[2][2] == -1)


def test_classes_without_a_probability():
    # There are only two paths: two and three labels.
    probabilities = [[[0.0, 1, 0]], [[0, 0, 1]], [[0.25, 0, 0.75]], [[0, 1, 0]]]
    scores, lengths, labels = ctc_beam_search_decoder_with_log_probs(
        tf.math.log(probabilities), [4], beam_width=6, top_paths=3
    )
    np.testing.assert_allclose(np.exp(scores), [[0.75, 0.25, 0]])
    np.testing.assert_array_equal(lengths, [[2, 3, 0]])
    np.testing.assert_array_equal(labels, [[[1, 1, -1, -1], [1, 0, 1, -1], [-1] * 4]])


def test_only_a_blank():
    scores, lengths, labels = ctc_beam_search_decoder(tf.ones((3, 1, 1)), [3], 4, 2)
    np.testing.assert_array_equal(scores, [[0.0, -math.inf]])
    np.testing.assert_array_equal(lengths, [[0, 0]])
    np.testing.assert_array_equal(labels, np.full((1, 2, 3), -1))


def test_float16():
    logits = logits_of(dtype=np.float16)
    scores, lengths, labels = traced(beam_width=6, top_paths=2)(logits, [10, 9, 3])
    exact = traced(beam_width=6, top_paths=2)(logits.astype("float32"), [10, 9, 3])
    assert scores.dtype == tf.float16
    np.testing.assert_allclose(scores, exact[0], rtol=1e-3)
    np.testing.assert_array_equal(lengths, exact[1])
    np.testing.assert_array_equal(labels, exact[2])


def test_graph_of_tensorflow_1():
    expected = traced(beam_width=6, top_paths=2)(logits_of(), [10, 9, 3])
    with tf.Graph().as_default():
        logits = tf.compat.v1.placeholder(tf.float32, (10, 3, 4))
        results = ctc_beam_search_decoder(logits, [10, 9, 3], 6, 2, name="my_search")
        assert [tensor.name for tensor in results] == [
            "my_search:0",
            "my_search_1:0",
            "my_search_2:0",
        ]
        with tf.compat.v1.Session() as session:
            actual = session.run(results, {logits: logits_of()})
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_batch_size_that_is_not_known_yet():
    specs = [tf.TensorSpec((10, None, 4)), tf.TensorSpec((None,), tf.int32)]
    run = tf.function(
        lambda *tensors: ctc_beam_search_decoder(*tensors, beam_width=6, top_paths=2),
        input_signature=specs,
    )
    shapes = [(None, 2), (None, 2), (None, 2, 10)]
    assert list(run.get_concrete_function().output_shapes) == [tf.TensorShape(s) for s in shapes]
    expected = traced(beam_width=6, top_paths=2)(logits_of(), [10, 9, 3])
    for one, other in zip(run(logits_of(), [10, 9, 3]), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_has_no_gradient():
    logits = tf.constant(logits_of())
    with tf.GradientTape() as tape:
        tape.watch(logits)
        scores, _, _ = traced(beam_width=6)(logits, [10, 9, 3])
    assert tape.gradient(scores, logits) is None


def test_is_one_operation():
    function = traced(beam_width=6).get_concrete_function(
        tf.TensorSpec((10, 3, 4)), tf.TensorSpec((3,), tf.int32)
    )
    outside = {
        op.type
        for op in function.graph.get_operations()
        if not op.name.startswith("poplar.CTCBeamSearchDecoder/")
    }
    assert outside == {"Placeholder", "Identity"}


class TestErrors:
    """What can be known before anything is computed."""

    @pytest.mark.parametrize(
        ("top_paths", "message"),
        [
            (0, "`top_paths` must be a positive integer. Received: top_paths=0$"),
            (9, "equal to `beam_width`. Received: top_paths=9, beam_width=8$"),
        ],
    )
    def test_paths(self, top_paths, message):
        with pytest.raises(ValueError, match=message):
            ctc_beam_search_decoder(logits_of(), [10, 9, 3], 8, top_paths)

    def test_beam(self):
        with pytest.raises(ValueError, match=r"`beam_width` must be .* Received: beam_width=0"):
            ctc_beam_search_decoder(logits_of(), [10, 9, 3], 0)

    def test_blank(self):
        with pytest.raises(ValueError, match=r"one of the 4 classes .* blank_index=4"):
            ctc_beam_search_decoder(logits_of(), [10, 9, 3], blank_index=4)

    def test_type(self):
        with pytest.raises(TypeError, match=r"`log_probs` must be .* a tensor of int32"):
            ctc_beam_search_decoder_with_log_probs(tf.zeros((1, 1, 2), tf.int32), [1])

    def test_lengths(self):
        with pytest.raises(ValueError, match=r"`input_lengths` .* input_lengths.shape=\(2,\)"):
            ctc_beam_search_decoder_with_log_probs(logits_of(), [1, 2])

"""The CTC loss: against all paths one by one, and against TensorFlow's where it is defined."""

import doctest
import math

import numpy as np
import pytest
import tensorflow as tf
from ctc_paths import probabilities_of_labels, softmax
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_keras.ops import ctc_loss as module
from ipu_keras.ops import nn_ops
from ipu_keras.ops.ctc_loss import ctc_loss_v2, ctc_loss_with_log_probs

# Blank labels, no labels, repeated ones, padded ones, and as many as there are steps.
LABELS = [[1, 2, 3, 2], [2, 2, 4, 4], [0, 0, 0, 0], [3, 1, 2, 1], [1, 1, 9, -7]]
LABEL_LENGTHS = [3, 4, 0, 4, 2]
DATA_LENGTHS = [7, 7, 5, 4, 6]


def logits_of(time=7, batch=5, num_classes=5, dtype=np.float32):
    return np.random.default_rng(0).normal(size=(time, batch, num_classes)).astype(dtype)


def loss_and_gradient(logits, *, jit_compile=False, loss=ctc_loss_v2, blank=0, **options):
    """Each loss counts differently, so that it is known whose gradient is whose."""

    @tf.function(jit_compile=jit_compile, autograph=False)
    def run(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            losses = loss(LABELS, logits, LABEL_LENGTHS, DATA_LENGTHS, blank, **options)
            total = tf.reduce_sum(losses * [1.0, 2.0, 3.0, 4.0, 5.0])
        return losses, tape.gradient(total, logits)

    return run(tf.constant(logits))


def loss_of_tensorflow(labels, logits, label_length, logit_length, blank_index):
    return tf.nn.ctc_loss(
        tf.constant(labels), logits, label_length, logit_length, blank_index=blank_index
    )


def test_examples_in_the_docstrings():
    assert doctest.testmod(module).failed == 0


def test_golden():
    # 3 of 4 paths of two steps, all of 1/4, have the label: 01, 10 and 11. Two of these have
    # it at each step, so that the loss's slope is 1/2 - 2/3 by the label's logits.
    logits = tf.zeros((2, 1, 2))
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = ctc_loss_v2([[1]], logits, [1], [2], 0)
    np.testing.assert_allclose(loss, [-math.log(0.75)], rtol=1e-6)
    gradient = tape.gradient(loss, logits)
    np.testing.assert_allclose(gradient, np.full((2, 1, 2), [1 / 6, -1 / 6]), rtol=1e-5)


@st.composite
def sequences(draw):
    """Logits of one sequence, its labels with padding, its lengths, and the blank."""
    time, num_classes = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    blank = draw(st.integers(-num_classes, num_classes - 1))
    classes = [label for label in range(num_classes) if label != blank % num_classes]
    number = st.floats(-3, 3, width=32)
    logits = draw(st.lists(number, min_size=time * num_classes, max_size=time * num_classes))
    length = draw(st.integers(0, time if classes else 0))
    labels = [draw(st.sampled_from(classes)) for _ in range(length)]
    return np.reshape(logits, (time, num_classes)), labels, draw(st.integers(0, time)), blank


@given(sequences())
@settings(deadline=None, derandomize=True, max_examples=30)
def test_against_all_paths(sequence):
    logits, labels, length, blank = sequence
    probabilities = probabilities_of_labels(softmax(logits)[:length], blank % logits.shape[1])
    probability = probabilities.get(tuple(labels), 0.0)
    padded = [[*labels, 0, -1]]
    data = tf.constant(logits[:, np.newaxis], tf.float32)
    lengths = [len(labels)], [length]
    for loss, given_data in (
        (ctc_loss_v2, data),
        (ctc_loss_with_log_probs, tf.nn.log_softmax(data)),
    ):
        actual = loss(padded, given_data, *lengths, blank)
        np.testing.assert_allclose(np.exp(-actual), [probability], rtol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("blank", [0, 4])
def test_as_tensorflow(blank, jit_compile):
    # TensorFlow's loss needs labels that can be had.
    labels = np.where(np.less(LABELS, 0) | np.equal(LABELS, 9), 1, LABELS)
    labels = np.where(labels == blank, 3 - blank // 2, labels)

    def run(loss):
        logits = tf.constant(logits_of())
        with tf.GradientTape() as tape:
            tape.watch(logits)
            losses = loss(labels, logits, LABEL_LENGTHS, [7, 7, 5, 6, 6], blank)
        return losses, tape.gradient(losses, logits)

    ours = tf.function(run, jit_compile=jit_compile)(ctc_loss_v2)
    for actual, expected in zip(ours, run(loss_of_tensorflow), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_gradient_of_log_probabilities():
    log_probs = tf.nn.log_softmax(logits_of(4, 3, 3))

    @tf.function
    def losses(log_probs):
        return ctc_loss_with_log_probs([[1, 1], [2, 1], [0, 0]], log_probs, [2, 2, 0], [4, 3, 2], 0)

    [[theory], [numeric]] = tf.test.compute_gradient(losses, [log_probs], delta=1e-2)
    np.testing.assert_allclose(theory, numeric, atol=2e-3)


@pytest.mark.parametrize("from_logits", [False, True])
@given(sequence=sequences(), is_normal=st.booleans(), has_two=st.booleans())
@settings(deadline=None, derandomize=True, max_examples=40)
def test_gradient_against_finite_differences(from_logits, sequence, is_normal, has_two):
    """With any blank and any lengths, of what sums to one and of what does not."""
    loss_of = ctc_loss_v2 if from_logits else ctc_loss_with_log_probs
    data, labels, length, blank = sequence
    num_classes = data.shape[1]
    values = np.log(softmax(data)) if is_normal else data.astype(np.float64)

    def loss(values):
        probabilities = softmax(values) if from_logits else np.exp(values)
        found = probabilities_of_labels(probabilities[:length], blank % num_classes)
        return -math.log(found[tuple(labels)]) if tuple(labels) in found else math.inf

    # A second sequence must neither get nor give anything.
    batch = np.stack([values, np.roll(data, 1, axis=0)][: 1 + has_two], axis=1)
    tensor = tf.constant(batch, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        losses = loss_of(
            [[*labels, 0]] * (1 + has_two),
            tensor,
            [len(labels)] * (1 + has_two),
            [length] * (1 + has_two),
            blank,
        )
    gradient = tape.gradient(losses, tensor, tf.constant([3.0, 0.0][: 1 + has_two])).numpy()
    np.testing.assert_allclose(losses[0], loss(values), rtol=1e-5, atol=1e-6)
    expected = np.zeros_like(values)
    if math.isfinite(loss(values)):
        for index in np.ndindex(values.shape):
            step = np.zeros_like(values)
            step[index] = 1e-5
            expected[index] = 3 * (loss(values + step) - loss(values - step)) / 2e-5
    np.testing.assert_allclose(gradient[:, 0], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(gradient[:, 1:], 0)


def test_gradient_of_logits():
    @tf.function
    def losses(logits):
        return ctc_loss_v2([[0, 0], [2, 0], [0, 0]], logits, [2, 2, 0], [4, 3, 2], -2)

    [[theory], [numeric]] = tf.test.compute_gradient(losses, [logits_of(4, 3, 3)], delta=1e-2)
    np.testing.assert_allclose(theory, numeric, atol=2e-3)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_compiled_is_as_eager(jit_compile):
    losses, gradient = loss_and_gradient(logits_of(), jit_compile=jit_compile)
    eager = ctc_loss_v2(LABELS, logits_of(), LABEL_LENGTHS, DATA_LENGTHS, 0)
    np.testing.assert_allclose(losses, eager, rtol=1e-5)
    # 2, 4 and 4 again are 5 labels and blanks at least; 7 steps are enough for them.
    assert np.all(np.isfinite(losses))
    assert np.all(np.any(gradient != 0, axis=(0, 2)))


@pytest.mark.parametrize(
    ("labels", "label_length", "time"),
    [
        ([1], 1, 0),
        ([1, 2], 2, 1),
        ([1, 1], 2, 2),
        ([4], 1, 3),
        ([-1], 1, 3),
        ([1], 2, 3),
    ],
    ids=["no step", "too few steps", "no blank", "no class", "below", "fewer labels than said"],
)
@pytest.mark.parametrize("loss", [ctc_loss_v2, ctc_loss_with_log_probs])
def test_impossible_labels(loss, labels, label_length, time):
    data = tf.nn.log_softmax(logits_of(3, 2, 3))
    with tf.GradientTape() as tape:
        tape.watch(data)
        # A possible sequence beside it is not disturbed.
        both = [labels, [2] * len(labels)]
        losses = loss(both, data, [label_length, 1], [time, 3], 0)
    gradient = tape.gradient(losses, data)
    assert losses[0] == math.inf
    assert np.isfinite(losses[1])
    np.testing.assert_array_equal(gradient[:, 0], np.zeros((3, 3)))
    assert np.all(np.any(gradient[:, 1] != 0, axis=-1))


def test_no_labels_at_all():
    losses = ctc_loss_v2(tf.zeros((2, 0), tf.int32), tf.zeros((3, 2, 2)), [0, 0], [3, 0], 1)
    np.testing.assert_allclose(losses, [3 * math.log(2), 0.0], rtol=1e-6)


def test_impossible_classes():
    log_probs = tf.constant([[[0.0, -math.inf]], [[-math.inf, 0.0]]])
    with tf.GradientTape() as tape:
        tape.watch(log_probs)
        loss = ctc_loss_with_log_probs([[1]], log_probs, [1], [2], 0)
    np.testing.assert_array_equal(loss, [0.0])
    np.testing.assert_array_equal(tape.gradient(loss, log_probs), [[[-1, 0]], [[0, -1]]])
    assert ctc_loss_with_log_probs([[1]], log_probs, [1], [1], 0) == [math.inf]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_what_follows_after_the_end_is_ignored(jit_compile):
    logits = logits_of()
    expected = loss_and_gradient(logits, jit_compile=jit_compile)
    for batch, length in enumerate(DATA_LENGTHS):
        logits[length:, batch] = np.nan
    actual = loss_and_gradient(logits, jit_compile=jit_compile)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_nan_before_the_end_is_not_hidden():
    logits = logits_of()
    logits[1, 0, 3] = np.nan
    losses = ctc_loss_v2(LABELS, logits, LABEL_LENGTHS, DATA_LENGTHS, 0)
    np.testing.assert_array_equal(np.isnan(losses), [True, False, False, False, False])


def test_long_sequences():
    # The probability of labels underflows float32, and float64 too.
    time, num_classes = 600, 40
    logits = logits_of(time, 1, num_classes)
    labels = np.random.default_rng(1).integers(1, num_classes, size=(1, 200))

    @tf.function
    def run(loss):
        return loss(labels, logits, [200], [time], 0)

    actual, expected = run(ctc_loss_v2), run(loss_of_tensorflow)
    assert actual > 1000
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("out_dtype", [None, tf.float16, "float32"])
def test_float16(out_dtype):
    logits = logits_of(dtype=np.float16)
    with tf.GradientTape() as tape:
        data = tf.constant(logits)
        tape.watch(data)
        losses = ctc_loss_v2(LABELS, data, LABEL_LENGTHS, DATA_LENGTHS, 0, out_dtype)
    expected = ctc_loss_v2(LABELS, logits.astype("float32"), LABEL_LENGTHS, DATA_LENGTHS, 0)
    assert losses.dtype == tf.as_dtype(out_dtype or tf.float16)
    np.testing.assert_allclose(losses, expected, rtol=1e-3)
    gradient = tape.gradient(losses, data)
    assert gradient.dtype == tf.float16
    assert np.all(np.isfinite(gradient))


def test_graph_of_tensorflow_1():
    expected = loss_and_gradient(logits_of())
    with tf.Graph().as_default():
        logits = tf.compat.v1.placeholder(tf.float32, (7, 5, 5))
        losses = ctc_loss_v2(LABELS, logits, LABEL_LENGTHS, DATA_LENGTHS, 0, name="my_loss")
        assert losses.name == "my_loss:0"
        [gradient] = tf.gradients(losses * [1.0, 2.0, 3.0, 4.0, 5.0], logits)
        with tf.compat.v1.Session() as session:
            actual = session.run((losses, gradient), {logits: logits_of()})
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_batch_size_that_is_not_known_yet():
    specs = [tf.TensorSpec((None, 2), tf.int32), tf.TensorSpec((3, None, 4))]
    length = tf.TensorSpec((None,), tf.int32)

    @tf.function(input_signature=[*specs, length, length])
    def run(*tensors):
        return ctc_loss_v2(*tensors, blank_index=0)

    assert run.get_concrete_function().output_shapes == (None,)
    logits = logits_of(3, 2, 4)
    np.testing.assert_allclose(
        run([[1, 2], [3, 0]], logits, [2, 1], [3, 2]),
        ctc_loss_v2([[1, 2], [3, 0]], logits, [2, 1], [3, 2], 0),
    )


def test_is_one_operation():
    @tf.function(autograph=False)
    def run(logits):
        with tf.GradientTape() as tape, tf.name_scope("speech"):
            tape.watch(logits)
            loss = ctc_loss_v2(LABELS, logits, LABEL_LENGTHS, DATA_LENGTHS, 0)
        return tape.gradient(loss, logits)

    operations = run.get_concrete_function(tf.TensorSpec((7, 5, 5))).graph.get_operations()
    loops = [op.name for op in operations if op.type in ("While", "StatelessWhile")]
    assert [name.rpartition("/")[0] for name in loops] == [
        "speech/poplar.CTCLoss",
        "gradient_tape/speech/poplar.CTCLoss",
    ]


def test_gradient_has_no_gradient():
    logits = tf.constant(logits_of())
    with tf.GradientTape() as outer:
        outer.watch(logits)
        with tf.GradientTape() as inner:
            inner.watch(logits)
            loss = ctc_loss_v2(LABELS, logits, LABEL_LENGTHS, DATA_LENGTHS, 0)
        gradient = inner.gradient(loss, logits)
    with pytest.raises(LookupError, match="gradient of the CTC loss is not differentiable"):
        outer.gradient(gradient, logits)


@pytest.mark.parametrize(
    ("old", "new"),
    [("ctc_loss", "ctc_loss_with_log_probs"), ("ctc_loss_with_logits", "ctc_loss_v2")],
)
def test_older_names(old, new):
    arguments = LABELS, logits_of(), LABEL_LENGTHS, DATA_LENGTHS, 0
    np.testing.assert_array_equal(
        getattr(nn_ops, old)(*arguments), getattr(nn_ops, new)(*arguments)
    )
    assert "THIS FUNCTION IS DEPRECATED" in getattr(nn_ops, old).__doc__


class TestErrors:
    """What can be known before anything is computed."""

    @staticmethod
    def call(**changed):
        arguments = {
            "labels": LABELS,
            "logits": logits_of(),
            "label_length": LABEL_LENGTHS,
            "logit_length": DATA_LENGTHS,
            "blank_index": 0,
        }
        return ctc_loss_v2(**{**arguments, **changed})

    def test_less_precision_than_the_data(self):
        message = "out_dtype cannot be float16 when dtype of logits is float32"
        with pytest.raises(ValueError, match=message):
            self.call(out_dtype=tf.float16)
        with pytest.raises(ValueError, match="when dtype of data is float32"):
            ctc_loss_with_log_probs([[1]], tf.zeros((1, 1, 2)), [1], [1], 0, "float16")

    def test_out_dtype(self):
        with pytest.raises(ValueError, match=r"float16 or float32. Received: float64"):
            self.call(out_dtype=tf.float64)

    @pytest.mark.parametrize("blank_index", [5, -6])
    def test_blank(self, blank_index):
        message = f"one of the 5 classes .* Received: blank_index={blank_index}$"
        with pytest.raises(ValueError, match=message):
            self.call(blank_index=blank_index)

    def test_type_of_logits(self):
        with pytest.raises(TypeError, match=r"`logits` must be .* Received: a tensor of float64$"):
            self.call(logits=logits_of(dtype=np.float64))

    def test_shape_of_logits(self):
        with pytest.raises(ValueError, match=r"\(max_time, .* Received: logits.shape=\(7, 5\)$"):
            self.call(logits=logits_of()[:, 0])

    @pytest.mark.parametrize("name", ["labels", "label_length", "logit_length"])
    def test_type_of_integers(self, name):
        with pytest.raises(TypeError, match=f"`{name}` must be a tensor of int.*of float32$"):
            self.call(**{name: tf.zeros((5,))})

    def test_shape_of_labels(self):
        message = r"`labels` must have .* 2 .*\(5, any\), as `logits`.*: labels.shape=\(3, 4\)$"
        with pytest.raises(ValueError, match=message):
            self.call(labels=LABELS[:3])

    def test_shape_of_lengths(self):
        message = r"`logit_length` must have .*\(5\), as `logits` .*: logit_length.shape=\(4,\)$"
        with pytest.raises(ValueError, match=message):
            self.call(logit_length=DATA_LENGTHS[:4])

    def test_number_of_labels_is_not_known(self):
        run = tf.function(lambda labels: self.call(labels=labels))
        with pytest.raises(ValueError, match=r"known number .* labels.shape=\(5, None\)"):
            run.get_concrete_function(tf.TensorSpec((5, None), tf.int32))

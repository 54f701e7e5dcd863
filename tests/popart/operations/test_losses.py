"""Losses against what NumPy computes, and decoded labels."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from popart_graphs import WAYS, check_gradient, graph, ipu_node, one, results_of

from ipu_keras.popart.exceptions import popart_exception

FLOATS = [np.float32, np.float16]
REDUCTIONS = {"Sum": np.sum, "Mean": np.mean, "NoReduction": np.asarray}
# As PopART numbers them.
NAMES = [*REDUCTIONS, 0, 1, 2]

every_way = pytest.mark.parametrize("way", WAYS)
# XLA takes its time for each.
ways_and_reductions = pytest.mark.parametrize(
    ("way", "reduction"),
    [*[("eager", name) for name in NAMES], *[(way, "Mean") for way in WAYS[1:]]],
)


def reduced(losses, reduction):
    return REDUCTIONS[reduction if isinstance(reduction, str) else NAMES[reduction]](losses)


X = np.array([[1.0, -2.0, 0.5], [3.0, -0.25, 2.0]])
P = np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [0.0, 0.5, 0.5], [0.3, 0.3, 0.4]])
LABELS = np.array([0, 2, 0, 1], np.int32)


@ways_and_reductions
@pytest.mark.parametrize("dtype", FLOATS)
def test_identity_and_l1_losses(reduction, dtype, way):
    x = X.astype(dtype)
    for kind, attributes, losses in (("IdentityLoss", {}, X), ("L1", {"lambda": 0.5}, abs(X) / 2)):
        result = one(kind, x, reduction=reduction, way=way, **attributes)
        expected = reduced(losses, reduction)
        assert (result.dtype, result.shape) == (dtype, expected.shape)
        np.testing.assert_allclose(result, expected, rtol=1e-6 if dtype == np.float32 else 1e-3)


@ways_and_reductions
@pytest.mark.parametrize("dtype", FLOATS)
def test_negative_log_likelihoods(reduction, dtype, way):
    """The third sample's class has a probability of zero."""
    least = 1e-7 if dtype == np.float32 else 6.104e-5
    losses = -np.log([0.5, 0.7, least, 0.3])
    result = one("Nll", P.astype(dtype), LABELS, reduction=reduction, way=way)
    expected = reduced(losses, reduction)
    assert (result.dtype, result.shape) == (dtype, expected.shape)
    np.testing.assert_allclose(result, expected, rtol=1e-6 if dtype == np.float32 else 2e-3)


@every_way
def test_classes_that_do_not_count(way):
    losses = -np.log([0.5, 0.7, 0.3])
    options = {"ignoreIndex": 0, "way": way}
    probabilities, labels = P.astype(np.float32), np.array([1, 2, 0, 1], np.int32)
    probabilities[0, 1] = 0.5
    for reduction, expected in (
        ("NoReduction", [*losses[:2], 0, losses[2]]),
        ("Sum", losses.sum()),
        ("Mean", losses.mean()),
    ):
        result = one("Nll", probabilities, labels, reduction=reduction, **options)
        np.testing.assert_allclose(result, expected, rtol=1e-6)
    none = np.zeros_like(labels)
    assert [one("Nll", probabilities, none, reduction=r, **options) for r in (0, 1)] == [0, 0]


@every_way
def test_labels_that_are_no_class(way):
    """They have a probability of zero; none is ignored unless it is said so."""
    given = (P[:2].astype(np.float32), np.array([3, -1], np.int32))
    losses = one("Nll", *given, reduction="NoReduction", way=way)
    np.testing.assert_allclose(losses, [-np.log(1e-7)] * 2, rtol=1e-6)
    losses = one("Nll", *given, reduction="NoReduction", ignoreIndex=-1, way=way)
    np.testing.assert_allclose(losses, [-np.log(1e-7), 0], rtol=1e-6)


@every_way
def test_log_probabilities_of_several_axes(way):
    """One of which is the logarithm of zero."""
    with np.errstate(divide="ignore"):
        given = np.log(P).astype(np.float32).reshape(2, 2, 3)
    labels = np.array([[0, 2], [1, 1]], np.int32)
    losses = one("Nll", given, labels, reduction=2, inputIsLogProbability=1, way=way)
    np.testing.assert_allclose(losses, -np.log([[0.5, 0.7], [0.5, 0.3]]), rtol=1e-6)


@pytest.mark.parametrize("reduction", list(REDUCTIONS))
def test_gradients(reduction):
    check_gradient("IdentityLoss", X, reduction=reduction)
    check_gradient("L1", X, **{"lambda": 0.5}, reduction=reduction)
    positive = np.maximum(P, 0.1)
    check_gradient("Nll", positive, LABELS, reduction=reduction)
    check_gradient("Nll", positive, LABELS, reduction=reduction, ignoreIndex=0)
    check_gradient("Nll", positive, LABELS, reduction=reduction, inputIsLogProbability=1)


def test_a_class_of_probability_zero_has_a_gradient():
    p = tf.constant([[0.0, 1.0], [0.25, 0.75]])
    main = graph([ipu_node("Nll", "p labels", "loss", reduction="Sum")], "", "loss")
    with tf.GradientTape() as tape:
        tape.watch(p)
        (loss,) = results_of(main, {"p": p, "labels": tf.constant([0, 0])})
    np.testing.assert_allclose(tape.gradient(loss, p), [[-1e7, 0], [-4, 0]], rtol=1e-5)


def all_labels(path):
    """What a path of classes spells; the blank is 0."""
    return tuple(key for key, _ in itertools.groupby(path) if key)


def probabilities_of_labels(log_probs, steps):
    """By trying all paths."""
    found = {}
    for path in itertools.product(range(log_probs.shape[1]), repeat=steps):
        probability = np.exp(sum(log_probs[t, c] for t, c in enumerate(path)))
        found[all_labels(path)] = found.get(all_labels(path), 0.0) + probability
    return found


random = np.random.default_rng(3)
LOGITS = random.normal(size=(4, 2, 3))
LOG_PROBS = LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True))
TARGETS = np.array([[1, 2], [2, 0]], np.int32)
INPUT_LENGTHS, TARGET_LENGTHS = np.array([4, 3], np.int32), np.array([2, 1], np.int32)


@ways_and_reductions
@pytest.mark.parametrize("dtype", FLOATS)
def test_ctc_losses(reduction, dtype, way):
    losses = [
        -np.log(probabilities_of_labels(LOG_PROBS[:, n], steps)[labels])
        for n, (steps, labels) in enumerate([(4, (1, 2)), (3, (2,))])
    ]
    given = (LOG_PROBS.astype(dtype), TARGETS, INPUT_LENGTHS, TARGET_LENGTHS.astype(np.uint32))
    result = one("Ctc", *given, reduction=reduction, blank=0, way=way)
    is_mean = reduced(np.array([1, 3]), reduction).tolist() == 2
    expected = reduced(losses / TARGET_LENGTHS if is_mean else losses, reduction)
    assert (result.dtype, result.shape) == (dtype, expected.shape)
    np.testing.assert_allclose(result, expected, rtol=1e-5 if dtype == np.float32 else 2e-3)


def test_the_mean_of_ctc_losses_without_labels():
    """A sample without a label counts whole: it is all blank."""
    given = (LOG_PROBS.astype(np.float32), TARGETS, INPUT_LENGTHS, np.array([0, 0], np.int32))
    blank = [-LOG_PROBS[:steps, n, 0].sum() for n, steps in enumerate(INPUT_LENGTHS)]
    np.testing.assert_allclose(one("Ctc", *given, reduction="Mean"), np.mean(blank), rtol=1e-5)


def test_the_type_of_ctc_losses():
    given = (LOG_PROBS.astype(np.float16), TARGETS, INPUT_LENGTHS, TARGET_LENGTHS)
    assert one("Ctc", *given, outDataType="FLOAT").dtype == np.float32
    text = "'FLOAT', 'FLOAT16', 'UNDEFINED'. Received: outDataType='INT32'"
    with pytest.raises(popart_exception, match=text):
        one("Ctc", *given, outDataType="INT32")


def test_gradients_of_ctc_losses():
    given = {"x": tf.constant(LOG_PROBS, tf.float32)}
    names = ("targets", "input_lengths", "target_lengths")
    known = dict(zip(names, (TARGETS, INPUT_LENGTHS, TARGET_LENGTHS), strict=True))
    node = ipu_node("Ctc", "x targets input_lengths target_lengths", "loss", reduction="Sum")
    main = graph([node], "", "loss", **known)
    theory, numeric = tf.test.compute_gradient(
        lambda x: results_of(main, {"x": x})[0], [given["x"]], 1e-2
    )
    np.testing.assert_allclose(theory, numeric, atol=1e-3)


@every_way
@pytest.mark.parametrize("dtype", FLOATS)
def test_decoded_labels(dtype, way):
    """The two most likely of all labels, their lengths, and what they are."""
    scores, lengths, labels = one(
        "CtcBeamSearchDecoder",
        LOG_PROBS.astype(dtype),
        INPUT_LENGTHS.astype(np.uint32),
        outputs=3,
        beam_width=20,
        top_paths=2,
        way=way,
    )
    assert (scores.dtype, lengths.dtype, labels.dtype) == (dtype, np.uint32, np.uint32)
    assert (scores.shape, lengths.shape, labels.shape) == ((2, 2), (2, 2), (2, 2, 4))
    for n, steps in enumerate(INPUT_LENGTHS):
        found = probabilities_of_labels(LOG_PROBS[:, n], steps)
        best = sorted(found, key=found.get, reverse=True)[:2]
        for rank, expected in enumerate(best):
            assert lengths[n, rank] == len(expected)
            assert tuple(labels[n, rank, : len(expected)]) == expected
            np.testing.assert_allclose(np.exp(scores[n, rank]), found[expected], rtol=5e-3)


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "text"),
    [
        ("L1", [X], {"lambda": 1.0, "reduction": "max"}, "'Sum', 'Mean', 'NoReduction'. .*'max'"),
        ("IdentityLoss", [X], {"reduction": 3}, "Received: reduction=3"),
        ("L1", [X], {}, "The attribute 'lambda' is missing"),
        ("Nll", [P, LABELS[:2]], {}, r"labels of shape \[2\] for probabilities of shape \[4, 3\]"),
        (
            "CtcBeamSearchDecoder",
            [LOG_PROBS.astype(np.float32), INPUT_LENGTHS],
            {"beam_width": 1, "top_paths": 2},
            "`top_paths` must be less than or equal to `beam_width`",
        ),
        (
            "Nll",
            [P.astype(np.float32), LABELS.astype(np.float32)],
            {},
            "which are integers. Received: float32",
        ),
    ],
)
def test_errors(kind, inputs, attributes, text):
    with pytest.raises(popart_exception, match=f"^In {kind} 'y0': .*{text}"):
        one(kind, *inputs, outputs=3 if kind.startswith("CtcB") else 1, **attributes)

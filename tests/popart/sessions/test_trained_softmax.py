"""Gradients of losses past and through the softmax that makes their probabilities."""

import itertools
import re

import numpy as np
import pytest

from ipu_keras import popart

Returns = popart.AnchorReturnType
Reduction = popart.ReductionType
LEAST = {np.float32: 1e-7, np.float16: 6.104e-5}
TYPES = {np.float32: "FLOAT", np.float16: "FLOAT16"}
IGNORED = 2

# Of the labels' classes, probabilities are common, below what logarithms are taken of, and 0.
LOGITS = np.float32(
    [[0.5, -1, 0.25], [20, 0, 3], [200, -200, 0], [-1000, 1000, 0], [0, 1, 2], [3, 60, -60]]
)
LABELS = np.int32([0, 1, 1, 0, 2, 0])


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def is_label_of(labels):
    return (np.arange(3) == labels[..., None]).astype(np.float64)


def golden(logits, labels, dtype, reduction=Reduction.Mean, ignored=None, passes=True):
    """Gradients by logits, in 64 bits, of probabilities as they are in a type."""
    probabilities = softmax(logits.astype(np.float64)).astype(dtype).astype(np.float64)
    is_label = is_label_of(labels)
    counts = np.ones(labels.shape) if ignored is None else labels != ignored
    scale = counts / (counts.sum() if reduction == Reduction.Mean else 1)
    if passes:
        return (probabilities - is_label) * scale[..., None]
    arriving = -is_label / np.maximum(probabilities, LEAST[dtype]) * scale[..., None]
    along = (arriving * probabilities).sum(axis=-1, keepdims=True)
    return probabilities * (arriving - along)


class Classifier:
    """`nll(softmax(x + w))`, and what `draw` makes of that."""

    def __init__(self, logits, labels, dtype=np.float32, opset=10, axis=-1, draw=None, **loss):
        self.logits, self.labels = logits.astype(dtype), labels
        self.builder = builder = popart.Builder(opsets={"ai.onnx": opset, "ai.graphcore": 1})
        self.x = builder.addInputTensor(popart.TensorInfo(TYPES[dtype], list(logits.shape)))
        self.given = builder.addInputTensor(popart.TensorInfo("INT32", list(labels.shape)))
        w = builder.addInitializedInputTensor(np.zeros(logits.shape, dtype))
        self.before = builder.aiOnnx.add([self.x, w])
        self.probabilities = builder.aiOnnx.softmax([self.before], axis=axis)
        self.result = builder.aiGraphcore.nllloss([self.probabilities, self.given], **loss)
        self.loss = self.result if draw is None else draw(self)

    def gradients(self, make, anchors=(), patterns=None, scaling=1.0):
        """Of the loss by logits, then by more tensors."""
        names = [f"Gradient___{name}" for name in (self.before, *anchors)]
        optimizer = popart.SGD({"lossScaling": (scaling, True)})
        session, found = make(
            self.builder.getModelProto(),
            self.loss,
            optimizer,
            {name: Returns("All") for name in names},
            patterns=patterns,
        )
        session.run(popart.PyStepIO({self.x: self.logits, self.given: self.labels}, found))
        return [found[name] for name in names]


def without():
    patterns = popart.Patterns()
    patterns.SoftMaxGradDirect = False
    return patterns


def with_sum(model):
    return model.builder.aiGraphcore.identityloss([model.result], Reduction.Sum)


REDUCTIONS = (Reduction.Mean, Reduction.Sum, Reduction.NoReduction)
CASES = list(itertools.product(REDUCTIONS, (None, IGNORED), (True, False)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("reduction", "ignored", "passes"), CASES)
def test_gradients_by_logits(training_of, reduction, ignored, passes, dtype):
    draw = with_sum if reduction == Reduction.NoReduction else None
    options = {} if ignored is None else {"ignoreIndex": ignored}
    model = Classifier(LOGITS, LABELS, dtype, draw=draw, reduction=reduction, **options)
    patterns = None if passes else without()
    # More than 3 times the reciprocal of the least probability would be infinite in float16.
    (found,) = model.gradients(training_of, patterns=patterns, scaling=2.0)
    expected = 2 * golden(LOGITS, LABELS, dtype, reduction, ignored, passes)
    assert found.dtype == dtype
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == np.float32 else {"rtol": 4e-3, "atol": 4e-3}
    np.testing.assert_allclose(found, expected, **close)
    # That of a class whose probability is 0 is as large as any, or vanishes with it.
    assert (found[3, 0] < -0.2) == passes


def test_labels_that_are_no_class(training_of):
    """They have no 1; without the pattern, nothing of the row depends on them."""
    labels = np.int32([3, -1, 1, 0, 2, 0])
    for patterns in (None, without()):
        (found,) = Classifier(LOGITS, labels).gradients(training_of, patterns=patterns)
        expected = golden(LOGITS, labels, np.float32, passes=patterns is None)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("opset", "axis", "passes"), [(10, 2, True), (10, -1, True), (10, 1, False)]
)
def test_rows_of_softmax_that_are_classes(training_of, opset, axis, passes):
    """With the axis 1, all from there on are one row, of which labels choose no element."""
    logits, labels = LOGITS.reshape(2, 3, 3), LABELS.reshape(2, 3)
    (found,) = Classifier(logits, labels, opset=opset, axis=axis).gradients(training_of)
    if passes:
        expected = golden(logits, labels, np.float32)
    else:
        p = softmax(logits.reshape(2, 9).astype(np.float64)).reshape(logits.shape)
        arriving = -is_label_of(labels) / np.maximum(p, 1e-7) / 6
        expected = p * (arriving - (arriving * p).sum(axis=(1, 2), keepdims=True))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def with_penalty(model):
    """The loss, and the mean of squares of its probabilities."""
    onnx, p = model.builder.aiOnnx, model.probabilities
    penalty = onnx.reducemean([onnx.mul([p, p])], axes=[0, 1], keepdims=0)
    return onnx.add([model.result, penalty])


def test_probabilities_that_others_take_too(training_of):
    """Their gradients are added up first, as on an IPU, and so go through the softmax."""
    (found,) = Classifier(LOGITS, LABELS, draw=with_penalty).gradients(training_of)
    p = softmax(LOGITS.astype(np.float64))
    arriving = 2 * p / p.size
    penalty = p * (arriving - (arriving * p).sum(axis=1, keepdims=True))
    expected = penalty + golden(LOGITS, LABELS, np.float32, passes=False)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def with_accuracy(model):
    onnx = model.builder.aiOnnx
    model.chosen = onnx.argmax([model.probabilities], 1, 0)
    return model.result


def test_probabilities_that_no_other_loss_takes(training_of):
    """What the loss does not depend on gives no gradient."""
    (found,) = Classifier(LOGITS, LABELS, draw=with_accuracy).gradients(training_of)
    np.testing.assert_allclose(found, golden(LOGITS, LABELS, np.float32), rtol=1e-5, atol=1e-6)


def test_the_gradient_of_probabilities_is_an_anchor(training_of):
    """It is what the one by logits is computed from then."""
    model = Classifier(LOGITS, LABELS)
    by_logits, found = model.gradients(training_of, [model.probabilities])
    p = softmax(LOGITS.astype(np.float64))
    is_label = is_label_of(LABELS)
    np.testing.assert_allclose(found, -is_label / np.maximum(p, 1e-7) / 6, rtol=1e-5)
    expected = golden(LOGITS, LABELS, np.float32, passes=False)
    np.testing.assert_allclose(by_logits, expected, rtol=1e-5, atol=1e-6)


def test_a_loss_that_excludes_the_pattern(training_of):
    def excluding(model):
        model.builder.excludePatterns(model.result, ["SoftmaxGradDirect"])
        return model.result

    (found,) = Classifier(LOGITS, LABELS, draw=excluding).gradients(training_of)
    expected = golden(LOGITS, LABELS, np.float32, passes=False)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_sample_that_is_wrong_beyond_doubt_is_learnt(training_of, weights_of):
    """Its class has a probability of 0, which a gradient through it would leave there."""
    builder = popart.Builder()
    labels = builder.addInputTensor(popart.TensorInfo("INT32", [1]))
    logits = np.float32([[200, -200]])
    w = builder.addInitializedInputTensor(logits)
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([w]), labels])
    proto = builder.getModelProto()
    step = {labels: np.int32([[1]] * 5)}
    for patterns, moved in ((None, [-250, 250]), (without(), [0, 0])):
        session, found = training_of(
            proto, loss, popart.ConstSGD(100.0), batches=5, patterns=patterns
        )
        session.run(popart.PyStepIO(step, found))
        # Two steps of 100, then half of one; its loss is 0 after the third.
        after = weights_of(session, {w: logits})[w]
        np.testing.assert_array_equal(after - logits, [moved])


def test_sessions_with_other_patterns_are_others(tmp_path):
    model = Classifier(LOGITS, LABELS)
    device = popart.DeviceManager().acquireAvailableDevice(1)
    path = str(tmp_path / "executable")

    def session(patterns):
        proto, flow = model.builder.getModelProto(), popart.DataFlow(1, [])
        optimizer = popart.ConstSGD(0.1)
        return popart.TrainingSession(proto, flow, model.loss, optimizer, device, patterns=patterns)

    session(popart.Patterns()).compileAndExport(path)
    with pytest.raises(popart.popart_exception, match=re.escape(path)):
        session(without()).loadExecutable(path)
    device.detach()

"""Losses of Graphcore's and ONNX's domains, and the beam search decoder for CTC."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.ops.ctc_decoder import ctc_beam_search_decoder_with_log_probs
from ipu_keras.ops.ctc_loss import ctc_loss_with_log_probs
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.operation import graphcore_operation, operation
from ipu_keras.tracing.poplar_operation import differentiable

_REDUCTIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "Sum": tf.reduce_sum,
    "Mean": tf.reduce_mean,
    "NoReduction": tf.identity,
}

# PopART's least probability before a logarithm is taken. That of float16 is its smallest normal
# number, which is more than 1e-7.
_LEAST_PROBABILITY = {tf.float16: 6.104e-5}
_LEAST = 1e-7

_CTC_DTYPES = {"FLOAT": tf.float32, "FLOAT16": tf.float16, "UNDEFINED": None}


@graphcore_operation("IdentityLoss")
def identity_loss(x, *, reduction="Mean"):
    return _reduction(reduction)(x)


@graphcore_operation("L1")
def l1_loss(x, *, lambda_, reduction="Mean"):
    return _reduction(reduction)(tf.abs(x)) * tf.cast(lambda_, x.dtype)


@graphcore_operation("Nll")
def nll_loss(
    probabilities,
    labels,
    *,
    reduction="Mean",
    ignoreIndex=None,
    inputIsLogProbability=0,
    context,
):
    reduce = _reduction(reduction)
    if not labels.shape.is_compatible_with(probabilities.shape[:-1]):
        raise popart_exception(
            "Labels have to have the shape of probabilities without the last axis, that of "
            f"classes. Received: labels of shape {labels.shape.as_list()} for probabilities of "
            f"shape {probabilities.shape.as_list()}"
        )
    if not labels.dtype.is_integer:
        raise popart_exception(
            f"Labels are numbers of classes, which are integers. Received: {labels.dtype.name}"
        )
    labels = tf.cast(labels, tf.int32)
    # An IPU compares labels with the number of each class, so a label that is no class picks no
    # probability.
    exists = (labels >= 0) & (labels < probabilities.shape[-1])
    chosen = tf.gather(
        probabilities, tf.where(exists, labels, 0), axis=-1, batch_dims=labels.shape.rank
    )
    chosen = tf.where(exists, chosen, tf.zeros([], chosen.dtype))
    losses = -(chosen if inputIsLogProbability else tf.math.log(_at_least_epsilon(chosen)))
    if context.logits is not None and not inputIsLogProbability:
        losses = _with_direct_gradient(losses, context.logits, probabilities, labels)
    if ignoreIndex is None:
        return reduce(losses)
    counts = tf.not_equal(labels, ignoreIndex)
    losses = tf.where(counts, losses, tf.zeros([], losses.dtype))
    if reduce is not tf.reduce_mean:
        return reduce(losses)
    # float16 counts exactly up to 2,048 only.
    wide = tf.float32 if losses.dtype == tf.float16 else losses.dtype
    total, number = (tf.reduce_sum(tf.cast(each, wide)) for each in (losses, counts))
    return tf.cast(tf.math.divide_no_nan(total, number), losses.dtype)


@operation("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood_loss(x, target, weight=None, *, ignore_index=None, reduction):
    return _negative_log_likelihood(x, target, weight, ignore_index, reduction)


@operation("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy_loss(scores, labels, weights=None, *, ignore_index=None, reduction):
    # ONNX's losses have classes as the second axis, and Graphcore's as the last.
    log_prob = tf.nn.log_softmax(scores, axis=1)
    losses = _negative_log_likelihood(log_prob, labels, weights, ignore_index, reduction)
    return losses, log_prob


def _negative_log_likelihood(x, target, weight, ignore_index, reduction):
    if reduction not in ("none", "sum", "mean"):
        raise popart_exception(
            f"The attribute `reduction` must be 'none', 'sum' or 'mean'. Received: {reduction!r}"
        )
    counts = tf.ones_like(target, tf.bool) if ignore_index is None else target != ignore_index
    labels = tf.where(counts, target, tf.zeros([], target.dtype))
    # With `batch_dims`, classes have to come behind all axes of the labels.
    last = tf.transpose(x, [0, *range(2, x.shape.rank), 1])
    chosen = tf.gather(last, labels, axis=-1, batch_dims=labels.shape.rank)
    weights = tf.ones_like(chosen) if weight is None else tf.gather(weight, labels)
    weights *= tf.cast(counts, weights.dtype)
    losses = -chosen * weights
    if reduction == "none":
        return losses
    # ONNX's mean is weighted: it divides by the weights that count, and not by their number.
    total = tf.reduce_sum(losses)
    return total if reduction == "sum" else total / tf.reduce_sum(weights)


@graphcore_operation("Ctc")
def ctc_loss(
    log_probs,
    targets,
    input_lengths,
    target_lengths,
    *,
    reduction="Mean",
    blank=0,
    outDataType="UNDEFINED",
):
    if outDataType not in _CTC_DTYPES:
        raise popart_exception(
            f"`outDataType` has to be one of {', '.join(map(repr, _CTC_DTYPES))}. "
            f"Received: outDataType={outDataType!r}"
        )
    losses = ctc_loss_with_log_probs(
        targets, log_probs, target_lengths, input_lengths, blank, _CTC_DTYPES[outDataType]
    )
    reduce = _reduction(reduction)
    if reduce is tf.reduce_mean:
        # PopART divides each loss by the number of its labels, as PyTorch does, so that long texts
        # do not count more than short ones.
        losses /= tf.cast(tf.maximum(tf.cast(target_lengths, tf.int32), 1), losses.dtype)
    return reduce(losses)


@graphcore_operation("CtcBeamSearchDecoder")
def ctc_beam_search_decoder(log_probs, lengths, *, blank=0, beam_width=100, top_paths=1):
    scores, label_lengths, labels = ctc_beam_search_decoder_with_log_probs(
        log_probs, lengths, beam_width, top_paths, blank
    )
    return scores, tf.cast(label_lengths, tf.uint32), tf.cast(labels, tf.uint32)


def _reduction(given: str | int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns how losses are reduced, by the name or the number of a PopART `ReductionType`."""
    names = list(_REDUCTIONS)
    name = names[given] if isinstance(given, int) and 0 <= given < len(names) else given
    if name not in names:
        raise popart_exception(
            f"`reduction` has to be one of {', '.join(map(repr, names))}. "
            f"Received: reduction={given!r}"
        )
    return _REDUCTIONS[str(name)]


def _with_direct_gradient(
    losses: tf.Tensor, logits: tf.Tensor, probabilities: tf.Tensor, labels: tf.Tensor
) -> tf.Tensor:
    """Sends the gradient of losses to the logits, past the softmax that made the probabilities.

    PopART's pattern `SoftMaxGradDirect` does so. Through the softmax, the gradient of a label would
    vanish with its probability, and a probability of 0 would never grow again.
    """

    def computed(_: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            # `one_hot` of a label that is no class is all zeros.
            is_label = tf.one_hot(labels, probabilities.shape[-1], dtype=probabilities.dtype)
            return (probabilities - is_label) * tf.expand_dims(upstream, -1)

        return tf.identity(losses), gradient

    return differentiable(computed, logits)


def _at_least_epsilon(x: tf.Tensor) -> tf.Tensor:
    """Limits probabilities from below, so that their logarithms are finite.

    IPUs limit the divisor of the gradient as well, so that a class of tiny probability has a large
    gradient. That of `tf.maximum` would be zero, hence `stop_gradient`.
    """
    least = tf.constant(_LEAST_PROBABILITY.get(x.dtype, _LEAST), x.dtype)
    return x + tf.stop_gradient(tf.maximum(x, least) - x)

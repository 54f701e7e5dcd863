"""The loss of connectionist temporal classification, with its gradient.

A. Graves et al., "Connectionist temporal classification: labelling unsegmented sequence
data with recurrent neural networks", 2006. The states of a sequence are its labels with
blanks around them; the loss is the negative logarithm of the probability of all paths
through the states.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from ipu_keras.internals.tensorflow.decorators import deprecated
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import converted
from ipu_keras.ops.ctc_inputs import (
    LOG_ZERO,
    Given,
    blank_class,
    integers,
    is_before_end,
    log_add,
    log_probabilities,
    time_major,
)
from ipu_keras.settings.arguments import noted
from ipu_keras.tracing.poplar_operation import differentiable, poplar_operation

_INSTEAD = "Use ctc_loss_v2 for logits, or ctc_loss_with_log_probs for log probabilities."


def ctc_loss_v2(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    blank_index: int,
    out_dtype: Any = None,
    name: str | None = None,
) -> tf.Tensor:
    """Returns how unlikely labels in a known order are, given logits for each step.

    The loss is differentiable once, with respect to the logits.

    Args:
        labels: Integers of the shape `(batch, max_label_length)`. What follows after
            `label_length` labels is ignored.
        logits: `(max_time, batch, num_classes)` of float16 or float32. What follows after
            `logit_length` steps is ignored.
        label_length: Numbers of labels, integers of the shape `(batch,)`.
        logit_length: Numbers of steps, integers of the shape `(batch,)`.
        blank_index: The class that means "no label"; negative to count from the last.
        out_dtype: Type of the loss; `None` for that of the logits.
        name: Name of the operation. Defaults to `"ctc_loss"`.

    Returns:
        The losses of the shape `(batch,)`. A loss is `inf`, and its gradient zero, if no
        path has the labels: they need a step each, and one more between two equal ones.
        So it is for a label that is not a class.

    Raises:
        TypeError: Logits or integers have another type.
        ValueError: Shapes do not fit; there is no class `blank_index`; or `out_dtype` has
            less precision than the logits.

    Example:

    All classes have a probability of 1/2, and 3 of the 4 paths have the label 1 once:
    blank and 1, 1 and blank, 1 and 1.

    >>> loss = ctc_loss_v2([[1]], tf.zeros((2, 1, 2)), [1], [2], blank_index=0)
    >>> print(tf.exp(-loss).numpy())
    [0.75]
    """
    return _loss(
        labels,
        Given(logits, "logits"),
        label_length,
        Given(logit_length, "logit_length"),
        blank_index,
        out_dtype,
        name,
        from_logits=True,
    )


def ctc_loss_with_log_probs(
    labels: Any,
    data: Any,
    label_length: Any,
    data_length: Any,
    blank_index: int,
    out_dtype: Any = None,
    name: str | None = None,
) -> tf.Tensor:
    """Does what `ctc_loss_v2` does, given log probabilities for each step.

    Args:
        labels: Integers of the shape `(batch, max_label_length)`. What follows after
            `label_length` labels is ignored.
        data: Log probabilities, `(max_time, batch, num_classes)` of float16 or float32, such as
            `tf.nn.log_softmax` returns. They are not normalized.
        label_length: Numbers of labels, integers of the shape `(batch,)`.
        data_length: Numbers of steps, integers of the shape `(batch,)`.
        blank_index: The class that means "no label"; negative to count from the last.
        out_dtype: Type of the loss; `None` for that of the data.
        name: Name of the operation. Defaults to `"ctc_loss"`.

    Returns:
        The losses of the shape `(batch,)`.

    Raises:
        TypeError: Log probabilities or integers have another type.
        ValueError: Shapes do not fit; there is no class `blank_index`; or `out_dtype` has less
            precision than the data.

    Example:

    >>> data = tf.math.log([[[0.25, 0.75]]])
    >>> loss = ctc_loss_with_log_probs([[1]], data, [1], [1], blank_index=0)
    >>> print(tf.exp(-loss).numpy())
    [0.75]
    """
    return _loss(
        labels,
        Given(data, "data"),
        label_length,
        Given(data_length, "data_length"),
        blank_index,
        out_dtype,
        name,
        from_logits=False,
    )


@deprecated(_INSTEAD)
def ctc_loss(
    labels: Any,
    data: Any,
    label_length: Any,
    data_length: Any,
    blank_index: int,
    out_dtype: Any = None,
    name: str | None = None,
) -> tf.Tensor:
    """The older name of `ctc_loss_with_log_probs`."""
    return ctc_loss_with_log_probs(
        labels, data, label_length, data_length, blank_index, out_dtype, name
    )


@deprecated(_INSTEAD)
def ctc_loss_with_logits(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    blank_index: int,
    out_dtype: Any = None,
    name: str | None = None,
) -> tf.Tensor:
    """The older name of `ctc_loss_v2`."""
    return ctc_loss_v2(labels, logits, label_length, logit_length, blank_index, out_dtype, name)


class _States(NamedTuple):
    """The states of sequences of labels: blank, label, blank, label, ..., blank.

    Args:
        classes: int32 of the shape `(batch, states)`.
        can_skip: Whether a path may come from two states before, over the blank between them.
        is_first: Where paths stand in a virtual step before the first.
    """

    classes: tf.Tensor
    can_skip: tf.Tensor
    is_first: tf.Tensor
    is_last: tf.Tensor


def _loss(
    labels,
    data: Given,
    label_length,
    data_length: Given,
    blank_index,
    out_dtype,
    name,
    *,
    from_logits,
):
    tensor = time_major(data)
    dtype = _loss_dtype(out_dtype, tensor.dtype, data.name)
    batch, num_classes = static_sizes(tensor)[1:]
    labels = integers(Given(labels, "labels"), (batch, None), data)
    if static_sizes(labels)[1] is None:
        raise ValueError(
            "`labels` must have the shape (batch_size, max_label_length), with a known number of "
            f"labels. Received: labels.shape={labels.shape}"
        )
    label_length = integers(Given(label_length, "label_length"), (batch,), data)
    data_length = integers(data_length, (batch,), data)
    blank = blank_class(blank_index, num_classes)

    def run(tensor):
        log_probs = log_probabilities(tensor, from_logits=from_logits)
        states = _states(labels, label_length, blank)
        active = is_before_end(data_length, static_sizes(tensor)[0])
        emissions = _emissions(log_probs, states.classes, active)
        last, before = _forward(emissions, states, active)
        log_likelihood = tf.reduce_logsumexp(tf.where(states.is_last, last, LOG_ZERO), axis=1)
        is_impossible = log_likelihood < LOG_ZERO / 2
        loss = tf.where(is_impossible, float("inf"), -log_likelihood)

        def gradient(upstream):
            after = _backward(emissions, states, active)
            paths = before + emissions + after - log_likelihood[:, tf.newaxis]
            counts = active & ~is_impossible
            # The gradient of each emission is the share of all paths that pass through the
            # state.
            posterior = tf.where(counts[..., tf.newaxis], tf.exp(paths), 0.0)
            slope = -_by_class(posterior, states.classes, num_classes)
            if from_logits:
                slope += tf.where(counts[..., tf.newaxis], tf.exp(log_probs), 0.0)
            slope = tf.cast(slope * tf.cast(upstream, tf.float32)[:, tf.newaxis], tensor.dtype)
            # To TensorFlow, what the loops kept is constant: a second derivative would be wrong
            # without an error.
            return tf.raw_ops.PreventGradient(
                input=slope, message="The gradient of the CTC loss is not differentiable."
            )

        return tf.cast(loss, dtype), gradient

    with poplar_operation("CTCLoss"):
        loss = differentiable(run, tensor)
    return tf.identity(loss, name=name or "ctc_loss")


def _loss_dtype(out_dtype: Any, dtype: tf.DType, name: str) -> tf.DType:
    if out_dtype is None:
        return dtype
    wanted = converted("out_dtype", tf.as_dtype, out_dtype)
    if wanted not in (tf.float16, tf.float32):
        raise ValueError(f"`out_dtype` must be float16 or float32. Received: {wanted.name}")
    if wanted == tf.float16 and dtype == tf.float32:
        raise noted(
            ValueError(f"out_dtype cannot be float16 when dtype of {name} is float32."),
            f"The loss would have less precision than what it is computed from. Cast `{name}` "
            "to float16, or leave `out_dtype` out. Received: out_dtype=float16, "
            f"{name}.dtype=float32",
        )
    return wanted


def _states(labels: tf.Tensor, label_length: tf.Tensor, blank: int) -> _States:
    max_labels = static_sizes(labels)[1]
    labels = tf.where(tf.range(max_labels) < label_length[:, tf.newaxis], labels, blank)
    pairs = tf.stack([tf.fill(tf.shape(labels), blank), labels], axis=2)
    pairs = tf.reshape(pairs, [tf.shape(labels)[0], 2 * max_labels])
    classes = tf.pad(pairs, [[0, 0], [0, 1]], constant_values=blank)
    before_blank = tf.pad(classes, [[0, 0], [2, 0]], constant_values=blank)[:, :-2]
    index = tf.range(2 * max_labels + 1)
    end = 2 * label_length[:, tf.newaxis]
    return _States(
        classes,
        can_skip=tf.not_equal(classes, blank) & tf.not_equal(classes, before_blank),
        is_first=tf.broadcast_to(tf.equal(index, 0), tf.shape(classes)),
        is_last=tf.equal(index, end) | tf.equal(index, end - 1),
    )


def _emissions(log_probs: tf.Tensor, classes: tf.Tensor, active: tf.Tensor) -> tf.Tensor:
    """Returns the log probability of each state's class, `(max_time, batch, states)`."""
    num_classes = static_sizes(log_probs)[2]
    known = (classes >= 0) & (classes < num_classes)
    emissions = tf.gather(
        tf.transpose(log_probs, [1, 2, 0]), tf.where(known, classes, 0), batch_dims=1
    )
    emissions = tf.where(known[..., tf.newaxis], emissions, LOG_ZERO)
    # The recursions must stay finite whatever the data has after the end, even NaN.
    return tf.where(active[..., tf.newaxis], tf.transpose(emissions, [2, 0, 1]), 0.0)


def _forward(emissions, states: _States, active):
    """Returns log probabilities of all paths into each state, after the last step and before
    each.

    Those before a step include the move into the state, but not what the step emits.
    """

    def step(time, scores, kept):
        moved = _moved(scores, tf.where(states.can_skip, _shifted(scores, 2), LOG_ZERO), 1)
        moved_on = tf.where(active[time][:, tf.newaxis], moved + emissions[time], scores)
        return time + 1, moved_on, kept.write(time, moved)

    scores, kept = _loop(step, emissions, tf.where(states.is_first, 0.0, LOG_ZERO))
    return scores, kept


def _backward(emissions, states: _States, active):
    """Returns log probabilities of all ways to go on from each state, after each step."""
    steps = static_sizes(emissions)[0]

    def step(count, scores, kept):
        time = steps - 1 - count
        kept = kept.write(time, scores)
        onward = scores + emissions[time]
        moved = _moved(onward, _shifted(tf.where(states.can_skip, onward, LOG_ZERO), -2), -1)
        return count + 1, tf.where(active[time][:, tf.newaxis], moved, scores), kept

    _, kept = _loop(step, emissions, tf.where(states.is_last, 0.0, LOG_ZERO))
    return kept


def _loop(step, emissions, scores):
    """Returns the scores after all steps, and what was kept of each."""
    steps = static_sizes(emissions)[0]
    kept = tf.TensorArray(tf.float32, steps, element_shape=static_sizes(emissions)[1:])
    _, scores, kept = tf.while_loop(
        lambda time, *_: time < steps,
        step,
        (tf.constant(0), scores, kept),
        maximum_iterations=steps,
    )
    return scores, kept.stack()


def _moved(scores: tf.Tensor, skipping: tf.Tensor, by: int) -> tf.Tensor:
    """Returns scores after a move: to stay, to go to the next state, or to skip a blank."""
    return log_add(log_add(scores, _shifted(scores, by)), skipping)


def _shifted(scores: tf.Tensor, by: int) -> tf.Tensor:
    """Returns scores of the state `by` before each, or after it if `by` is negative."""
    if by > 0:
        return tf.pad(scores, [[0, 0], [by, 0]], constant_values=LOG_ZERO)[:, :-by]
    return tf.pad(scores, [[0, 0], [0, -by]], constant_values=LOG_ZERO)[:, -by:]


def _by_class(posterior: tf.Tensor, classes: tf.Tensor, num_classes: int) -> tf.Tensor:
    """Returns the sum over the states of each class, `(max_time, batch, num_classes)`."""
    return tf.einsum("tbs,bsc->tbc", posterior, tf.one_hot(classes, num_classes))

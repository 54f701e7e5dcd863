"""The beam search of connectionist temporal classification, with dense results.

A. Graves, "Supervised sequence labelling with recurrent neural networks", 2012, chapter 7;
as A. Hannun et al., "First-pass large vocabulary continuous speech recognition using
bi-directional recurrent DNNs", 2014, without a language model. `tf.nn.ctc_beam_search_decoder`
agrees unless the beam is narrow: it then keeps other labels at times.

All beams of a step are extended by all classes at once, by operations that XLA compiles.
At 200 steps of 32 classes, a batch of 16 and a beam of 32, that takes a tenth of the time of
TensorFlow's kernel, in a graph without XLA a third, and eagerly four times as much
(`benchmarks/ctc.py`). So there is no kernel of our own, which no compiled step could call.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import positive_integer
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
from ipu_keras.tracing.poplar_operation import poplar_operation

# A label that no class has: the last label of the empty prefix, and what follows a last label.
_NONE = -1


def ctc_beam_search_decoder(
    logits: Any,
    logits_lengths: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = -1,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the most likely labels that a beam search finds, given logits for each step.

    The search has no gradient.

    Args:
        logits: `(max_time, batch, num_classes)` of float16 or float32.
        logits_lengths: Integers of the shape `(batch,)`. What follows after as many steps
            is ignored.
        beam_width: Number of sequences of labels that are kept at each step.
        top_paths: Number of sequences that are returned, at most `beam_width`.
        blank_index: The class that means "no label"; negative to count from the last.
        name: Name of the operations. Defaults to `"ctc_beam_search"`.

    Returns:
        Three tensors, each from the most to the least likely:

        - Log probabilities, `(batch, top_paths)`, of the type of the logits. They are at most
          0, as those of `tf.nn.ctc_beam_search_decoder` and those that IPUs return; the
          document of the interface calls them negative log probabilities.
        - The numbers of labels, int32 of the shape `(batch, top_paths)`.
        - The labels, int32 of the shape `(batch, top_paths, max_time)`. What follows after
          the last one is unspecified on an IPU; here it is -1, which no class has.

        If there are fewer sequences of labels than paths, the others have no labels and a
        log probability of `-inf`.

    Raises:
        TypeError: Logits or lengths have another type.
        ValueError: Shapes do not fit, there is no class `blank_index`, or more paths are
            wanted than the beam has.

    Example:

    >>> logits = tf.math.log([[[0.3, 0.6, 0.1]], [[0.6, 0.3, 0.1]]])
    >>> scores, lengths, labels = ctc_beam_search_decoder(logits, [2], 8, 2, blank_index=0)
    >>> print(tf.exp(scores).numpy().round(2), lengths.numpy(), labels.numpy())
    [[0.63 0.18]] [[1 0]] [[[ 1 -1]
      [-1 -1]]]
    """
    return _decode(
        Given(logits, "logits"),
        Given(logits_lengths, "logits_lengths"),
        beam_width,
        top_paths,
        blank_index,
        name,
        from_logits=True,
    )


def ctc_beam_search_decoder_with_log_probs(
    log_probs: Any,
    input_lengths: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = -1,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Does what `ctc_beam_search_decoder` does, given log probabilities for each step.

    Args:
        log_probs: Log probabilities, `(max_time, batch, num_classes)` of float16 or float32,
            such as `tf.nn.log_softmax` returns. They are not normalized.
        input_lengths: Numbers of steps, integers of the shape `(batch,)`.
        beam_width: Number of sequences of labels that are kept at each step.
        top_paths: Number of sequences that are returned, at most `beam_width`.
        blank_index: The class that means "no label"; negative to count from the last.
        name: Name of the operations. Defaults to `"ctc_beam_search"`.

    Returns:
        Log probabilities, numbers of labels, and labels, as `ctc_beam_search_decoder`.

    Raises:
        TypeError: Log probabilities or lengths have another type.
        ValueError: Shapes do not fit, there is no class `blank_index`, or more paths are wanted
            than the beam has.

    Example:

    >>> log_probs = tf.math.log([[[0.3, 0.7]]])
    >>> scores, lengths, labels = ctc_beam_search_decoder_with_log_probs(
    ...     log_probs, [1], beam_width=2, blank_index=0
    ... )
    >>> print(tf.exp(scores).numpy(), lengths.numpy(), labels.numpy())
    [[0.7]] [[1]] [[[1]]]
    """
    return _decode(
        Given(log_probs, "log_probs"),
        Given(input_lengths, "input_lengths"),
        beam_width,
        top_paths,
        blank_index,
        name,
        from_logits=False,
    )


class _Beams(NamedTuple):
    """Sequences of labels, and the log probabilities of all paths that have them so far.

    A beam with a probability of zero only fills up the tensors, whatever its labels are.

    Args:
        score: float32 of the shape `(batch, beam)`, from the most to the least likely.
        after_blank: Part of the score from paths that end with a blank; `after_label` has the
            rest.
        last: The last label, int32 of the shape `(batch, beam)`; `_NONE` if there is none.
        labels: int32 of the shape `(batch, beam, max_time)`.
        is_prefix: Whether the first beam is a prefix of the second, or equal to it, as bool of
            the shape `(batch, beam, beam)`.
    """

    score: tf.Tensor
    after_blank: tf.Tensor
    after_label: tf.Tensor
    last: tf.Tensor
    length: tf.Tensor
    labels: tf.Tensor
    is_prefix: tf.Tensor


def _decode(data: Given, lengths: Given, beam_width, top_paths, blank_index, name, *, from_logits):
    tensor = time_major(data)
    max_time, batch, num_classes = static_sizes(tensor)
    num_steps = integers(lengths, (batch,), data)
    blank = blank_class(blank_index, num_classes)
    beam_width, top_paths = checked_widths(beam_width, top_paths)
    with poplar_operation("CTCBeamSearchDecoder"):
        # Some operations below have a gradient and some do not; the search as a whole has none.
        log_probs = log_probabilities(tf.stop_gradient(tensor), from_logits=from_logits)
        # After the end of a sequence every step is a certain blank, which leaves beams as they
        # are.
        staying = tf.where(tf.equal(tf.range(num_classes), blank), 0.0, LOG_ZERO)
        active = is_before_end(num_steps, max_time)[..., tf.newaxis]
        log_probs = tf.where(active, log_probs, staying)
        beams = _searched(log_probs, beam_width, blank)
        results = _results(beams, top_paths, tensor.dtype)
    return tuple(tf.identity(result, name=name or "ctc_beam_search") for result in results)


def checked_widths(beam_width: Any, top_paths: Any) -> tuple[int, int]:
    """Returns both as integers, or raises a `ValueError` if the beam has fewer than
    `top_paths`."""
    beam_width = positive_integer("beam_width", beam_width)
    top_paths = positive_integer("top_paths", top_paths)
    if top_paths > beam_width:
        raise ValueError(
            "`top_paths` must be less than or equal to `beam_width`. "
            f"Received: top_paths={top_paths}, beam_width={beam_width}"
        )
    return beam_width, top_paths


def _searched(log_probs: tf.Tensor, beam_width: int, blank: int) -> _Beams:
    max_time = static_sizes(log_probs)[0]

    def step(time, beams):
        return time + 1, _step(_Beams(*beams), log_probs[time], blank)

    beams = _first_beams(tf.shape(log_probs)[1], beam_width, max_time)
    _, beams = tf.while_loop(
        lambda time, _: time < max_time,
        step,
        (tf.constant(0), beams),
        maximum_iterations=max_time,
    )
    return _Beams(*beams)


def _first_beams(batch: Any, beam_width: int, max_time: int) -> _Beams:
    """Returns the empty sequence as the only beam that counts."""
    is_empty = tf.broadcast_to(tf.equal(tf.range(beam_width), 0), [batch, beam_width])
    certain = tf.where(is_empty, 0.0, LOG_ZERO)
    return _Beams(
        score=certain,
        after_blank=certain,
        after_label=tf.fill([batch, beam_width], LOG_ZERO),
        last=tf.fill([batch, beam_width], _NONE),
        length=tf.fill([batch, beam_width], 0),
        labels=tf.fill([batch, beam_width, max_time], _NONE),
        is_prefix=_pairs(is_empty),
    )


def _step(beams: _Beams, log_probs: tf.Tensor, blank: int) -> _Beams:
    """Returns the most likely of all sequences that the beams become by one more step.

    `log_probs` are what the step emits, `(batch, classes)`.
    """
    batch, num_classes = tf.shape(log_probs)[0], static_sizes(log_probs)[1]
    beam_width = static_sizes(beams.score)[1]
    is_last = tf.equal(beams.last[..., tf.newaxis], tf.range(num_classes))
    length = beams.length[:, tf.newaxis]
    is_parent = beams.is_prefix & tf.equal(length, beams.length[..., tf.newaxis] + 1)

    # An extension that is a beam itself is no new sequence, but more paths of that beam.
    extended = _extended(beams, is_last) + log_probs[:, tf.newaxis]
    stayed = _stayed(beams, is_parent, log_probs, blank)
    is_beam = tf.matmul(tf.cast(is_parent, tf.float32), tf.cast(is_last, tf.float32)) > 0.0
    scores = tf.where(is_beam, LOG_ZERO, extended)
    # No sequence is extended by a blank: its place is that of the sequence as it is.
    is_blank = tf.equal(tf.range(num_classes), blank)
    # A blank makes no new sequence, so its column has the sequence as it stays.
    scores = tf.where(is_blank, log_add(*stayed)[..., tf.newaxis], scores)

    scores = tf.reshape(scores, [batch, beam_width * num_classes])
    score, chosen = tf.math.top_k(scores, beam_width)
    source, label = chosen // num_classes, chosen % num_classes
    label = tf.where(tf.equal(label, blank), _NONE, label)
    return _chosen(beams, stayed, score, source, label)


def _extended(beams: _Beams, is_last: tf.Tensor) -> tf.Tensor:
    """Returns the scores of paths that get another class; the same label again needs a blank."""
    after_blank, score = beams.after_blank[..., tf.newaxis], beams.score[..., tf.newaxis]
    return tf.where(is_last, after_blank, score)


def _stayed(beams: _Beams, is_parent: tf.Tensor, log_probs: tf.Tensor, blank: int):
    """Returns the scores, after a blank and after a label, of each sequence after one more step.

    If the sequence without its last label is a beam too, the paths that add the label join.
    """
    emitted = tf.gather(log_probs, tf.maximum(beams.last, 0), batch_dims=1)
    repeats = tf.equal(beams.last[..., tf.newaxis], beams.last[:, tf.newaxis])
    joining = tf.where(is_parent, _extended(beams, repeats), LOG_ZERO)
    joining = tf.reduce_max(joining, axis=1)
    after_label = log_add(beams.after_label, joining) + emitted
    return beams.score + log_probs[:, blank, tf.newaxis], after_label


def _chosen(beams: _Beams, stayed, score, source, label) -> _Beams:
    """Returns the beams that come of others, as they are or with one more label.

    Args:
        stayed: Scores of the beams before that stay as they are, after a blank and after a
            label.
        source: The beam that each new one comes from, int32 of the shape `(batch, beam)`.
        label: The label that is added; `_NONE` if the beam stays as it is.
    """

    def of_source(tensor):
        return tf.gather(tensor, source, batch_dims=1)

    stays = tf.equal(label, _NONE)
    position = of_source(beams.length)
    is_end = tf.equal(position[..., tf.newaxis], tf.range(static_sizes(beams.labels)[2]))
    labels = tf.where(is_end, label[..., tf.newaxis], of_source(beams.labels))
    # A prefix of a beam's source is one of the beam, too. Where the prefix itself got a label
    # more, the beam must have the same label at that position.
    sources = tf.gather(of_source(beams.is_prefix), source, axis=2, batch_dims=1)
    there = tf.gather(labels, position, axis=2, batch_dims=1)
    same = tf.equal(tf.transpose(there, [0, 2, 1]), label[..., tf.newaxis])
    is_prefix = sources & (stays[..., tf.newaxis] | same)
    after_blank, after_label = map(of_source, stayed)
    return _Beams(
        score=score,
        after_blank=tf.where(stays, after_blank, LOG_ZERO),
        after_label=tf.where(stays, after_label, score),
        last=tf.where(stays, of_source(beams.last), label),
        length=tf.where(stays, position, position + 1),
        labels=labels,
        # What only fills up the beam may have the labels of a beam that counts.
        is_prefix=is_prefix & _pairs(_is_alive(score)),
    )


def _results(beams: _Beams, top_paths: int, dtype: tf.DType) -> tuple:
    score, length = beams.score[:, :top_paths], beams.length[:, :top_paths]
    is_alive = _is_alive(score)
    return (
        tf.cast(tf.where(is_alive, score, float("-inf")), dtype),
        tf.where(is_alive, length, 0),
        tf.where(is_alive[..., tf.newaxis], beams.labels[:, :top_paths], _NONE),
    )


def _is_alive(score: tf.Tensor) -> tf.Tensor:
    # Log probabilities are added to `LOG_ZERO`, which never brings it up to half.
    return score > LOG_ZERO / 2


def _pairs(flags: tf.Tensor) -> tf.Tensor:
    """Whether both of each two have a flag, `(batch, beam, beam)`."""
    return flags[..., tf.newaxis] & flags[:, tf.newaxis]

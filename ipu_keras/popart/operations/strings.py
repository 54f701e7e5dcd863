"""Normalizes strings, and counts phrases of several words."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.operation import operation

# Languages (Azerbaijani, Lithuanian, Turkish) with case rules of their own, which TensorFlow lacks.
_OWN_CAPITALS = ("az", "lt", "tr")


def _lower(text: Any) -> Any:
    return tf.strings.lower(text, encoding="utf-8")


def _upper(text: Any) -> Any:
    return tf.strings.upper(text, encoding="utf-8")


_CHANGES = {"NONE": tf.identity, "LOWER": _lower, "UPPER": _upper}


@operation("StringNormalizer", since=10)
def string_normalizer(x, *, case_change_action, is_case_sensitive, locale=None, stopwords=None):
    if case_change_action not in _CHANGES:
        raise popart_exception(
            f"The attribute `case_change_action` must be one of {', '.join(_CHANGES)}. "
            f"Received: {case_change_action!r}"
        )
    if locale is not None and locale.lower().startswith(_OWN_CAPITALS):
        raise popart_exception(
            "Capitals are those of Unicode; the languages "
            f"{', '.join(_OWN_CAPITALS)} have others. Received: locale={locale!r}"
        )
    if x.shape.rank not in (1, 2):
        raise popart_exception(f"Words must be a vector or one row. Received: shape {x.shape}")
    words = tf.reshape(x, [-1])
    if stopwords:
        compared, stops = words, tf.constant(stopwords)
        if not is_case_sensitive:
            compared, stops = _lower(words), _lower(stops)
        is_stop = tf.reduce_any(compared[:, tf.newaxis] == stops, axis=1)
        words = tf.boolean_mask(words, ~is_stop)
    # If no word is left, ONNX wants one empty word rather than an empty tensor.
    words = tf.cond(tf.size(words) > 0, lambda: words, lambda: tf.constant([""]))
    return tf.reshape(_CHANGES[case_change_action](words), [*[1] * (x.shape.rank - 1), -1])


@operation("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(
    x,
    *,
    max_gram_length,
    max_skip_count,
    min_gram_length,
    mode,
    ngram_counts,
    ngram_indexes,
    pool_int64s=None,
    pool_strings=None,
    weights=None,
):
    if mode not in ("TF", "IDF", "TFIDF"):
        raise popart_exception(f"The attribute `mode` must be TF, IDF or TFIDF. Received: {mode!r}")
    if (pool_int64s is None) == (pool_strings is None):
        raise popart_exception(
            "Exactly one of the attributes `pool_int64s` and `pool_strings` must be given. "
            f"Received: {'none' if pool_strings is None else 'both'}"
        )
    if x.shape.rank not in (1, 2):
        raise popart_exception(f"Words must be a vector or rows. Received: shape {x.shape}")
    pool = np.array(pool_strings if pool_int64s is None else pool_int64s)
    rows = tf.reshape(x, [-1, x.shape[-1]])
    phrases = _phrases(pool, ngram_counts)
    numbers = tf.stack(
        [
            _occurrences(rows, phrase, max_skip_count)
            if min_gram_length <= len(phrase) <= max_gram_length
            else tf.zeros(tf.shape(rows)[0])
            for phrase in phrases
        ]
    )
    if mode == "IDF":
        numbers = tf.minimum(numbers, 1)
    if mode != "TF" and weights is not None:
        numbers *= tf.constant(weights)[:, tf.newaxis]
    by_index = tf.math.unsorted_segment_sum(numbers, ngram_indexes, max(ngram_indexes) + 1)
    return tf.transpose(by_index) if x.shape.rank > 1 else by_index[:, 0]


def _phrases(pool: np.ndarray, starts: Sequence[int]) -> list[np.ndarray]:
    """Lists the phrases of a pool, which has first those of one word, then those of two, ..."""
    parts = np.split(pool, starts[1:])
    return [
        phrase
        for num_words, part in enumerate(parts, start=1)
        for phrase in part.reshape(-1, num_words)
    ]


def _occurrences(rows: Any, phrase: np.ndarray, max_skip_count: int) -> Any:
    """Counts a phrase in each row, with up to `max_skip_count` words between two of its words.

    Within an occurrence, all gaps have the same number of words.
    """
    num_words, length = len(phrase), rows.shape[1]
    total = tf.zeros(tf.shape(rows)[0])
    for step in range(1, max_skip_count + 2 if num_words > 1 else 2):
        num_starts = length - step * (num_words - 1)
        if num_starts <= 0:
            break
        is_there = tf.ones([], tf.bool)
        for position, word in enumerate(phrase):
            begin = position * step
            is_there &= rows[:, begin : begin + num_starts] == tf.cast(word, rows.dtype)
        total += tf.reduce_sum(tf.cast(is_there, tf.float32), axis=1)
    return total

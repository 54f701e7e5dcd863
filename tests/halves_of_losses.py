"""Losses and metrics of halves beside NumPy, which are float32 whatever they are given."""

import keras
import numpy as np
import scipy.special as sp
import tensorflow as tf
from half_cases import Numbers, add

NUMBERS = Numbers()

# Losses and metrics, which are float32 whatever they are given.


def exactly(function):
    """What is computed of halves, and is none."""
    return lambda *arrays: function(*(np.asarray(array, np.float64) for array in arrays))


def of_rows(function):
    """The mean over samples of the mean over each one's numbers."""
    return exactly(lambda t, p: np.mean(function(t, p)))


def of_classes(function):
    """The mean over samples of a sum over their classes, whose probabilities sum to 1."""

    def computed(t, p):
        return np.mean(np.sum(function(t, p / p.sum(-1, keepdims=True)), -1))

    return exactly(computed)


def cross_entropy(t, p):
    return -t * np.log(p + 1e-7) - (1 - t) * np.log(1 - p + 1e-7)


def focal(t, p):
    right = t * p + (1 - t) * (1 - p)
    return (1 - right) ** 2 * -(t * np.log(p) + (1 - t) * np.log(1 - p))


def of_unit_vectors(function):
    def unit(x):
        return x / np.sqrt(np.sum(x * x, -1, keepdims=True))

    return exactly(lambda t, p: function(np.sum(unit(t) * unit(p), -1)))


Loss = keras.losses
LOSSES = {
    "mean squared error": (Loss.MeanSquaredError(), of_rows(lambda t, p: (p - t) ** 2)),
    "mean absolute error": (Loss.MeanAbsoluteError(), of_rows(lambda t, p: abs(p - t))),
    "mean absolute percentage error": (
        Loss.MeanAbsolutePercentageError(),
        of_rows(lambda t, p: 100 * abs((t - p) / t)),
    ),
    "mean squared logarithmic error": (
        Loss.MeanSquaredLogarithmicError(),
        of_rows(lambda t, p: (np.log1p(p) - np.log1p(t)) ** 2),
    ),
    "Huber": (
        Loss.Huber(0.25),
        of_rows(
            lambda t, p: np.where(
                abs(p - t) <= 0.25, (p - t) ** 2 / 2, 0.25 * abs(p - t) - 0.25**2 / 2
            )
        ),
    ),
    "log cosh": (Loss.LogCosh(), of_rows(lambda t, p: np.log(np.cosh(p - t)))),
    "Poisson": (Loss.Poisson(), of_rows(lambda t, p: p - t * np.log(p + 1e-7))),
    "KL divergence": (
        Loss.KLDivergence(),
        exactly(lambda t, p: np.mean(np.sum(t * np.log(t / p), -1))),
    ),
    "binary cross-entropy": (Loss.BinaryCrossentropy(), of_rows(cross_entropy)),
    "binary focal cross-entropy": (Loss.BinaryFocalCrossentropy(), of_rows(focal)),
    "binary cross-entropy of logits": (
        Loss.BinaryCrossentropy(from_logits=True),
        of_rows(lambda t, p: np.logaddexp(0, p) - t * p),
    ),
    "categorical cross-entropy": (
        Loss.CategoricalCrossentropy(),
        of_classes(lambda t, p: -t * np.log(p)),
    ),
    "categorical cross-entropy of logits": (
        lambda t, p: Loss.CategoricalCrossentropy(from_logits=True)(
            tf.one_hot(tf.argmax(t, -1), 4), p
        ),
        exactly(lambda t, p: np.mean(sp.logsumexp(p, -1) - p[np.arange(len(p)), t.argmax(-1)])),
    ),
    "categorical focal cross-entropy": (
        Loss.CategoricalFocalCrossentropy(),
        of_classes(lambda t, p: 0.25 * (1 - p) ** 2 * -t * np.log(p)),
    ),
    "sparse categorical cross-entropy of logits": (
        lambda t, p: Loss.SparseCategoricalCrossentropy(from_logits=True)(tf.argmax(t, -1), p),
        exactly(lambda t, p: np.mean(sp.logsumexp(p, -1) - p[np.arange(len(p)), t.argmax(-1)])),
    ),
    "hinge": (Loss.Hinge(), of_rows(lambda t, p: np.maximum(1 - t * p, 0))),
    "squared hinge": (Loss.SquaredHinge(), of_rows(lambda t, p: np.maximum(1 - t * p, 0) ** 2)),
    "categorical hinge": (
        Loss.CategoricalHinge(),
        exactly(
            lambda t, p: np.mean(np.maximum(0, np.max((1 - t) * p, -1) - np.sum(t * p, -1) + 1))
        ),
    ),
    "cosine similarity": (Loss.CosineSimilarity(), of_unit_vectors(lambda c: -np.mean(c))),
    "Dice": (
        Loss.Dice(),
        exactly(lambda t, p: 1 - (2 * np.sum(t * p) + 1e-7) / (np.sum(t) + np.sum(p) + 1e-7)),
    ),
    "Tversky": (
        Loss.Tversky(0.25, 0.5),
        exactly(
            lambda t, p: (
                1
                - np.sum(t * p)
                / (np.sum(t * p) + 0.25 * np.sum((1 - p) * t) + 0.5 * np.sum(p * (1 - t)) + 1e-7)
            )
        ),
    ),
}
for name, (compute, value) in LOSSES.items():
    given = np.float16(NUMBERS.random.uniform(0.05, 0.95, (2, 5, 4)))
    # Grappler writes the powers of graphs as products.
    options = {"roundings": 1, "in_xla": False, "eagerly": "focal" not in name}
    add("losses", name, compute, value, tuple(given), step=1e-6, **options)


METRICS = {
    "MeanSquaredError": of_rows(lambda t, p: (p - t) ** 2),
    "MeanAbsoluteError": of_rows(lambda t, p: abs(p - t)),
    "RootMeanSquaredError": exactly(lambda t, p: np.sqrt(np.mean((p - t) ** 2))),
    "BinaryCrossentropy": of_rows(cross_entropy),
    "CosineSimilarity": of_unit_vectors(np.mean),
    "BinaryAccuracy": of_rows(lambda t, p: (p > 0.5) == t),
    "Poisson": of_rows(lambda t, p: p - t * np.log(p + 1e-7)),
    "KLDivergence": exactly(
        lambda t, p: np.mean(np.sum(np.clip(t, 1e-7, 1) * np.log(np.clip(t, 1e-7, 1) / p), -1))
    ),
}

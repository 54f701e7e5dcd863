"""What connectionist temporal classification means: the sum over all paths, one by one."""

import itertools

import numpy as np


def labels_of(path, blank):
    """The labels of a path: one for each run of equal classes, without blanks."""
    return tuple(label for label, _ in itertools.groupby(path) if label != blank)


def probabilities_of_labels(probabilities, blank):
    """The probability of each sequence of labels, of all that there are.

    Args:
        probabilities: `(time, classes)`.
        blank: Its class.
    """
    time, num_classes = probabilities.shape
    found = {}
    for path in itertools.product(range(num_classes), repeat=time):
        labels = labels_of(path, blank)
        probability = np.prod([probabilities[step, label] for step, label in enumerate(path)])
        found[labels] = found.get(labels, 0.0) + probability
    return found


def softmax(logits):
    """In the precision of NumPy's floats."""
    exponential = np.exp(np.asarray(logits, np.float64))
    return exponential / exponential.sum(axis=-1, keepdims=True)

"""Elementwise comparisons and logic."""

import tensorflow as tf

from ipu_keras.popart.operations.broadcasting import aligned
from ipu_keras.popart.operations.operation import operation


@operation("Equal", since=7, elementwise=True)
def equal(a, b):
    return tf.equal(a, b)


@operation("Equal")
def equal_1(a, b, *, axis=None, broadcast):
    return tf.equal(a, aligned(a, b, axis, broadcast))


@operation("Less", since=7, elementwise=True)
def less(a, b):
    return a < b


@operation("Less")
def less_1(a, b, *, axis=None, broadcast):
    return a < aligned(a, b, axis, broadcast)


@operation("Greater", since=7, elementwise=True)
def greater(a, b):
    return a > b


@operation("Greater")
def greater_1(a, b, *, axis=None, broadcast):
    return a > aligned(a, b, axis, broadcast)


@operation("GreaterOrEqual", since=12, elementwise=True)
def greater_or_equal(a, b):
    return a >= b


@operation("LessOrEqual", since=12, elementwise=True)
def less_or_equal(a, b):
    return a <= b


@operation("And", since=7, elementwise=True)
def and_(a, b):
    return tf.logical_and(a, b)


@operation("And")
def and_1(a, b, *, axis=None, broadcast):
    return tf.logical_and(a, aligned(a, b, axis, broadcast))


@operation("Or", since=7, elementwise=True)
def or_(a, b):
    return tf.logical_or(a, b)


@operation("Or")
def or_1(a, b, *, axis=None, broadcast):
    return tf.logical_or(a, aligned(a, b, axis, broadcast))


@operation("Xor", since=7, elementwise=True)
def xor(a, b):
    return tf.not_equal(a, b)


@operation("Xor")
def xor_1(a, b, *, axis=None, broadcast):
    return tf.not_equal(a, aligned(a, b, axis, broadcast))


@operation("Not", elementwise=True)
def not_(x):
    return tf.logical_not(x)


@operation("IsNaN", since=9, elementwise=True)
def is_nan(x):
    return tf.math.is_nan(x)


@operation("IsInf", since=10, elementwise=True)
def is_inf(x, *, detect_negative, detect_positive):
    found = tf.zeros_like(x, tf.bool)
    if detect_negative:
        found |= x == -float("inf")
    if detect_positive:
        found |= x == float("inf")
    return found


@operation("Where", since=9, elementwise=True)
def where(condition, x, y):
    return tf.where(condition, x, y)

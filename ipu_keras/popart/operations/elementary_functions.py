"""Elementwise roots, exponentials, logarithms, and circular and hyperbolic functions."""

import tensorflow as tf

from ipu_keras.popart.operations.operation import operation


@operation("Sqrt", since=6, elementwise=True)
def sqrt(x):
    return tf.sqrt(x)


@operation("Exp", since=6, elementwise=True)
def exp(x):
    return tf.exp(x)


@operation("Log", since=6, elementwise=True)
def log(x):
    return tf.math.log(x)


@operation("Erf", since=9, elementwise=True)
def erf(x):
    return tf.math.erf(x)


@operation("Sin", since=7, elementwise=True)
def sin(x):
    return tf.sin(x)


@operation("Cos", since=7, elementwise=True)
def cos(x):
    return tf.cos(x)


@operation("Tan", since=7, elementwise=True)
def tan(x):
    return tf.tan(x)


@operation("Asin", since=7, elementwise=True)
def asin(x):
    return tf.asin(x)


@operation("Acos", since=7, elementwise=True)
def acos(x):
    return tf.acos(x)


@operation("Atan", since=7, elementwise=True)
def atan(x):
    return tf.atan(x)


@operation("Sinh", since=9, elementwise=True)
def sinh(x):
    return tf.sinh(x)


@operation("Cosh", since=9, elementwise=True)
def cosh(x):
    return tf.cosh(x)


@operation("Tanh", since=6, elementwise=True)
def tanh(x):
    return tf.tanh(x)


@operation("Asinh", since=9, elementwise=True)
def asinh(x):
    return tf.asinh(x)


@operation("Acosh", since=9, elementwise=True)
def acosh(x):
    return tf.acosh(x)


@operation("Atanh", since=9, elementwise=True)
def atanh(x):
    return tf.atanh(x)

"""Optimizers of which all that they keep is halves, beside NumPy: two steps, rounding by rounding.

The table is at the end.
"""

import functools

import keras
import numpy as np
import tensorflow as tf
from half_arithmetic import halves, once
from half_cases import Numbers, add

from ipu_addons.keras.optimizers import AdamIpuOptimizer, LAMBIpuOptimizer, SGDIpuOptimizer

NUMBERS = Numbers()


def of_keras(make, shape):
    """Returns a weight, what changes it by a gradient, and the variables of a new optimizer."""
    made, variable = make(), keras.Variable(np.zeros(shape), dtype="float16")
    made.build([variable])
    return variable, lambda slope: made.apply([slope], [variable]), made.variables


def of_tf1(make, shape):
    """The same of an optimizer that makes its variables in its first step, which is of zeros."""
    made, variable = make(), tf.Variable(np.zeros(shape, np.float16))
    made.apply_gradients([(tf.zeros_like(variable), variable)])
    return variable, lambda slope: made.apply_gradients([(slope, variable)]), made.variables()


def optimizer(make, kind=of_keras):
    @functools.cache
    def built(shape):
        variable, apply, kept = kind(make, shape)
        return variable, apply, [(each, each.numpy()) for each in kept]

    def computed(weight, *slopes):
        variable, apply, at_first = built(tuple(weight.shape))
        variable.assign(weight)
        for each, value in at_first:
            each.assign(value)
        for slope in slopes:
            apply(slope)
        return variable + 0

    return computed


def steps(update, *first):
    """Applies an update to a weight, a gradient, the number of the step, and what is kept.

    What is kept has these values before the first step.
    """

    def computed(weight, *slopes):
        kept = [halves(value) for value in first]
        for k, slope in enumerate(slopes):
            weight, *kept = update(weight, slope, halves(k + 1), *kept)
        return weight

    return computed


RATE = 0.0625


def sgd(w, g, k):
    return (w - g * RATE,)


def momentum(w, g, k, m):
    m = m * 0.9 - g * RATE
    return w + m, m


def nesterov(w, g, k, m):
    m = m * 0.9 - g * RATE
    return w + (m * 0.9 - g * RATE), m


def rms_prop(w, g, k, v):
    v = v * 0.9 + np.square(g) * 0.1
    return w - g * RATE / np.sqrt(v + 1e-3), v


def centered(w, g, k, v, mean, m):
    v, mean = v * 0.9 + np.square(g) * 0.1, mean * 0.9 + g * 0.1
    m = m * 0.5 + g * RATE / np.sqrt(v - np.square(mean) + 1e-3)
    return w - m, v, mean, m


def moments(g, m, v):
    return m + (g - m) * (1 - 0.9), v + (np.square(g) - v) * (1 - 0.99)


def adam(w, g, k, m, v):
    rate = RATE * np.sqrt(1 - halves(0.99) ** k) / (1 - halves(0.9) ** k)
    m, v = moments(g, m, v)
    return w - m * rate / (np.sqrt(v) + 1e-3), m, v


def amsgrad(w, g, k, m, v, largest):
    rate = RATE * np.sqrt(1 - halves(0.99) ** k) / (1 - halves(0.9) ** k)
    m, v = moments(g, m, v)
    largest = np.maximum(largest, v)
    return w - m * rate / (np.sqrt(largest) + 1e-3), m, v, largest


def adamw(w, g, k, m, v):
    return adam(w - w * 0.125 * RATE, g, k, m, v)


def adamax(w, g, k, m, u):
    m, u = m + (g - m) * (1 - 0.9), np.maximum(u * 0.99, abs(g))
    return w - m * RATE / ((1 - halves(0.9) ** k) * (u + 1e-3)), m, u


def adadelta(w, g, k, v, u):
    v = v * 0.9 + np.square(g) * 0.1
    delta = -(np.sqrt(u + 1e-3) * g / np.sqrt(v + 1e-3))
    return w + delta * RATE, v, u * 0.9 + np.square(delta) * 0.1


def adagrad(w, g, k, v):
    v = v + np.square(g)
    return w - g * RATE / np.sqrt(v + 1e-3), v


def ftrl(w, g, k, v, linear):
    after, power = v + np.square(g), once(np.sqrt)
    linear = linear + (g - (power(after) - power(v)) / RATE * w)
    clipped = np.clip(linear, -0.125, 0.125)
    return (clipped - linear) / (power(after) / RATE + 0.5), after, linear


def lion(w, g, k, m):
    return w - np.sign(m * 0.9 + g * (1 - halves(0.9))) * RATE, m * 0.99 + g * (1 - halves(0.99))


def lamb(w, g, k, m, v):
    m, v = moments(g, m, v)
    update = m / (1 - halves(0.9) ** k) / (np.sqrt(v / (1 - halves(0.99) ** k)) + 1e-3)
    ratio = np.sqrt(np.sum(np.square(w))) / np.sqrt(np.sum(np.square(update)))
    return w - ratio * RATE * update, m, v


def muon(w, g, k, m):
    m = m + (g + m * (0.95 - 1))
    x = g + 0.95 * m
    x = x / (np.sqrt(np.sum(np.square(x))) + 1e-7)
    for _ in range(2):
        products = once(np.matmul)(x, x.T)
        squares = -4.775 * products + once(np.matmul)(2.0315 * products, products)
        x = 3.4445 * x + once(np.matmul)(squares, x)
    # The rate is float32, and so is its product.
    return w - halves(np.float64(x) * RATE * np.sqrt(max(x.shape)) * 0.2), m


def adafactor(w, g, k, rows, columns):
    rate = np.maximum(halves(1e-3), np.sqrt(np.mean(np.square(w)))) * np.minimum(
        halves(RATE), 1 / np.sqrt(k)
    )
    kept, squares = 1 - k**-0.8, np.square(g)
    rows = kept * rows + (1 - kept) * np.mean(squares, -1)
    columns = kept * columns + (1 - kept) * np.mean(squares, -2)
    v = (rows / np.mean(rows, -1, keepdims=True))[:, np.newaxis] * columns
    change = g / np.sqrt(v)
    change = change / np.maximum(1, np.sqrt(np.mean(np.square(change))) / 1.0)
    return w - rate * change, rows, columns


def schedule_free(w, g, k, z, v):
    stays, share = halves(0.9), 1 / k
    v = v + (np.square(g) - v) * (1 - halves(0.99))
    z = z - RATE * g / (np.sqrt(v / (1 - halves(0.99) ** k)) + 1e-3)
    # Keras means the momentum from before, but TensorFlow reads the variable when it is needed.
    x = (w - (1 - stays) * z) / stays
    x = (1 - share) * x + share * z
    return (1 - stays) * z + stays * x, z, v


# Of optimizers for IPUs, which compute in float32 and round what they keep.


@once
def ipu_momentum(w, g, k, m):
    m = m * 0.9 - g * RATE
    return w + m, m


@once
def ipu_adam(w, g, k, m, v):
    m, v = moments(g, m, v)
    rate = RATE * np.sqrt(1 - 0.99**k) / (1 - 0.9**k)
    return w - m * rate / (np.sqrt(v) + 1e-3), m, v


def ipu_adam_of_halves(w, g, k, m, v):
    m, v = moments(g, m, v)
    exact = float(k)
    rate = halves(RATE * np.sqrt(1 - 0.99**exact) / (1 - 0.9**exact))
    return w - m * rate / (np.sqrt(v) + 1e-3), m, v


@once
def ipu_lamb(w, g, k, m, v):
    m, v = moments(g, m, v)
    update = m / (1 - 0.9**k) / (np.sqrt(v / (1 - 0.99**k)) + 1e-3) + 0.125 * w
    return w - RATE * np.linalg.norm(w) / np.linalg.norm(update) * update, m, v


# Of TensorFlow 1's, of which each is one operation that rounds what it keeps; settings are halves.

NINE_TENTHS, MOST = np.float64(np.float16([0.9, 0.99]))


@once
def tf1_momentum(w, g, k, m):
    m = m * NINE_TENTHS + g
    return w - RATE * m, m


@once
def tf1_adam(w, g, k, m, v):
    # The optimizer has done a step of zeros.
    powers = np.float64(np.float16([0.9 ** (k + 1), 0.99 ** (k + 1)]))
    rate = RATE * np.sqrt(1 - powers[1]) / (1 - powers[0])
    m, v = m + (g - m) * (1 - NINE_TENTHS), v + (g * g - v) * (1 - MOST)
    return w - rate * m / (np.sqrt(v) + 2.0**-10), m, v


@once
def tf1_rms_prop(w, g, k, v, m):
    v = v + (g * g - v) * (1 - NINE_TENTHS)
    m = m * 0.5 + RATE * g / np.sqrt(v + 2.0**-10)
    return w - m, v, m


@once
def tf1_adagrad(w, g, k, v):
    v = v + g * g
    return w - RATE * g / np.sqrt(v), v


@once
def tf1_adadelta(w, g, k, v, u):
    v = v * NINE_TENTHS + g * g * (1 - NINE_TENTHS)
    update = np.sqrt(u + 2.0**-10) / np.sqrt(v + 2.0**-10) * g
    return w - RATE * update, v, u * NINE_TENTHS + update**2 * (1 - NINE_TENTHS)


@once
def tf1_ftrl(w, g, k, v, linear):
    after = v + g * g
    linear = linear + g - (np.sqrt(after) - np.sqrt(v)) / RATE * w
    clipped = np.clip(linear, -0.125, 0.125)
    return (clipped - linear) / (np.sqrt(after) / RATE + 0.5), after, linear


O = keras.optimizers  # noqa: E741
BETAS = {"beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-3}
OPTIMIZERS = {
    "SGD": (lambda: O.SGD(RATE), steps(sgd)),
    "SGD, momentum": (lambda: O.SGD(RATE, momentum=0.9), steps(momentum, 0)),
    "SGD, Nesterov": (
        lambda: O.SGD(RATE, momentum=0.9, nesterov=True),
        steps(nesterov, 0),
    ),
    "RMSprop": (lambda: O.RMSprop(RATE, epsilon=1e-3), steps(rms_prop, 0)),
    "RMSprop, centered": (
        lambda: O.RMSprop(RATE, momentum=0.5, epsilon=1e-3, centered=True),
        steps(centered, 0, 0, 0),
    ),
    "Adam": (lambda: O.Adam(RATE, **BETAS), steps(adam, 0, 0)),
    "Adam, AMSGrad": (
        lambda: O.Adam(RATE, amsgrad=True, **BETAS),
        steps(amsgrad, 0, 0, 0),
    ),
    "AdamW": (lambda: O.AdamW(RATE, 0.125, **BETAS), steps(adamw, 0, 0)),
    "Adamax": (lambda: O.Adamax(RATE, **BETAS), steps(adamax, 0, 0)),
    "Adadelta": (
        lambda: O.Adadelta(RATE, rho=0.9, epsilon=1e-3),
        steps(adadelta, 0, 0),
    ),
    "Adagrad": (lambda: O.Adagrad(RATE, 0.1, epsilon=1e-3), steps(adagrad, 0.1)),
    "Ftrl": (
        lambda: O.Ftrl(RATE, l1_regularization_strength=0.125, l2_regularization_strength=0.25),
        steps(ftrl, 0.1, 0),
    ),
    "Lion": (lambda: O.Lion(RATE), steps(lion, 0)),
    "Lamb": (lambda: O.Lamb(RATE, **BETAS), steps(lamb, 0, 0)),
    "Muon": (lambda: O.Muon(RATE, ns_steps=2, weight_decay=None), steps(muon, 0)),
    "Adafactor": (lambda: O.Adafactor(RATE), steps(adafactor, 0, 0)),
    "ScheduleFreeAdamW": (lambda: O.ScheduleFreeAdamW(RATE, **BETAS), steps(schedule_free, 0, 0)),
    "SGDIpuOptimizer": (lambda: SGDIpuOptimizer(RATE, 0.9), steps(ipu_momentum, 0)),
    "SGDIpuOptimizer of halves": (
        lambda: SGDIpuOptimizer(RATE, 0.9, optimizer_compute_precisions=("float16",)),
        steps(momentum, 0),
    ),
    "AdamIpuOptimizer": (lambda: AdamIpuOptimizer(RATE, **BETAS), steps(ipu_adam, 0, 0)),
    "AdamIpuOptimizer of halves": (
        lambda: AdamIpuOptimizer(RATE, optimizer_compute_precisions=["float16"] * 2, **BETAS),
        steps(ipu_adam_of_halves, 0, 0),
    ),
    "LAMBIpuOptimizer": (
        lambda: LAMBIpuOptimizer(RATE, weight_decay_rate=0.125, **BETAS),
        steps(ipu_lamb, 0, 0),
    ),
}
V1 = tf.compat.v1.train
OF_TF1 = {
    "GradientDescentOptimizer": (lambda: V1.GradientDescentOptimizer(RATE), steps(once(sgd))),
    "MomentumOptimizer": (lambda: V1.MomentumOptimizer(RATE, 0.9), steps(tf1_momentum, 0)),
    "AdamOptimizer": (lambda: V1.AdamOptimizer(RATE, 0.9, 0.99, 2**-10), steps(tf1_adam, 0, 0)),
    "RMSPropOptimizer": (
        lambda: V1.RMSPropOptimizer(RATE, 0.9, 0.5, 2**-10),
        steps(tf1_rms_prop, NINE_TENTHS, 0),
    ),
    "AdagradOptimizer": (lambda: V1.AdagradOptimizer(RATE), steps(tf1_adagrad, 0.1)),
    "AdadeltaOptimizer": (
        lambda: V1.AdadeltaOptimizer(RATE, 0.9, 2**-10),
        steps(tf1_adadelta, 0, 0),
    ),
    "FtrlOptimizer": (
        lambda: V1.FtrlOptimizer(
            RATE, l1_regularization_strength=0.125, l2_regularization_strength=0.25
        ),
        steps(tf1_ftrl, 0.1, 0),
    ),
}
for name, (make, value) in OPTIMIZERS.items():
    add("optimizers", name, optimizer(make), value, tuple(NUMBERS.usual(5, 7) for _ in range(3)))
for name, (make, value) in OF_TF1.items():
    given = tuple(NUMBERS.usual(5, 7) for _ in range(3))
    add("optimizers", name, optimizer(make, of_tf1), value, given)

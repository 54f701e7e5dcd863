"""What nothing shows is looked at where it is lost; what is handed on is shown by what follows."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.host.lost_numbers import noting_lost_numbers

SPEC = tf.TensorSpec([2], tf.float32)


def flagged(function, *arrays, in_xla):
    """Whether a function of vectors has raised its flag, and how many looks it has for that."""
    inner = tf.function(function, autograph=False, jit_compile=in_xla)
    outer = tf.function(lambda *given: inner(*given), autograph=False)
    concrete = outer.get_concrete_function(*([SPEC] * len(arrays)))
    noting, flag = noting_lost_numbers(concrete)
    expected = concrete(*map(tf.constant, arrays))
    np.testing.assert_array_equal(noting(*map(tf.constant, arrays)), expected)
    raised = flag.is_raised
    flag.lower()
    noting(*(tf.ones_like(array) for array in arrays))
    assert not flag.is_raised
    return raised


def array(*values):
    return np.array(values, np.float32)


LOST = {
    "compared": (lambda x: tf.cast(tf.sqrt(x) > 0.0, tf.float32), -1.0),
    "chosen from": (lambda x: tf.where(x > 0.0, tf.sqrt(x), 0.0), -1.0),
    "cut off": (lambda x: tf.math.log(tf.stack([x, x]))[0, :1], 0.0),
    "divided by": (lambda x: 1.0 / (x * x), 1e30),
    "bounded": (lambda x: tf.tanh(x * x), 1e30),
    "an exponential": (lambda x: tf.exp(-x * x), 1e30),
    "an activation": (lambda x: tf.nn.relu(-x * x), 1e30),
    "made an integer": (lambda x: tf.cast(tf.cast(tf.math.log(x), tf.int32), tf.float32), -1.0),
    "in a chain": (lambda x: tf.tanh(tf.reduce_sum(x * x + 1.0) - 3.0), 1e30),
    "with an unused part": (lambda x: tf.split(x * x, 2)[0], 1e30),
}


@pytest.mark.parametrize("in_xla", [False, True])
@pytest.mark.parametrize("case", LOST)
def test_what_is_lost(case, in_xla):
    function, bad = LOST[case]
    assert flagged(function, array(1.0, bad), in_xla=in_xla)


@pytest.mark.parametrize("in_xla", [False, True])
def test_in_branches_and_loops(in_xla):
    def branch(x):
        return tf.cond(x[0] > 0.0, lambda: tf.tanh(x * x), lambda: x)

    def loop(x):
        last = tf.while_loop(lambda k, _: k < 3, lambda k, y: (k + 1, 1.0 / (y * y)), (0, x))
        return last[1]

    assert flagged(branch, array(1.0, 1e30), in_xla=in_xla)
    assert not flagged(branch, array(-1.0, 1e30), in_xla=in_xla)
    # Only the last turn makes an infinity.
    assert flagged(loop, array(1.0, 1e7), in_xla=in_xla)
    assert not flagged(loop, array(1.0, 2.0), in_xla=in_xla)


@pytest.mark.parametrize("in_xla", [False, True])
def test_what_is_meant_to_be_infinite_is_no_exception(in_xla):
    mask = array(0.0, -np.inf)
    assert not flagged(lambda x: tf.nn.softmax(x + mask), array(1.0, 2.0), in_xla=in_xla)
    # What is computed of the result is looked at again.
    assert flagged(
        lambda x: tf.tanh(tf.nn.softmax(x + mask) / (x - 2.0)), array(2.0, 3.0), in_xla=in_xla
    )


def noted(function, *specs):
    """The number of tensors that a function looks at."""
    concrete = tf.function(function, autograph=False).get_concrete_function(*specs)
    found, _ = noting_lost_numbers(concrete)
    return str(found.function_def).count('op: "IpuNoteNotFinite"')


def test_what_is_handed_on_is_not_looked_at():
    weights, state = tf.Variable(tf.ones([2, 2])), tf.Variable(tf.ones([2]))

    def chain(x):
        return tf.reduce_sum(tf.matmul(x[None], weights) * 2.0 + x, axis=0) / 3.0

    assert noted(chain, SPEC) == 0
    assert noted(lambda x: tf.tanh(chain(x)), SPEC) == 1
    assert noted(lambda x: tf.tanh(chain(x)) + chain(x), SPEC) == 1
    # What is written is looked at when the execution is over.
    assert noted(lambda x: state.assign(chain(x)), SPEC) == 0
    assert noted(lambda x: state.assign_add(chain(x)), SPEC) == 0
    # A root of a number is finite, and a small constant changes none to an infinity.
    assert noted(lambda x: 1.0 / (tf.sqrt(x) + 1e-7), SPEC) == 0
    assert noted(lambda x: 1.0 / (tf.sqrt(x) + 1e37), SPEC) == 1


HANDING_ON = {
    "Abs": tf.abs,
    "BiasAdd": lambda x: tf.nn.bias_add(x[None], tf.ones([2])),
    "Log": tf.math.log,
    "Log1p": tf.math.log1p,
    "MatMul": lambda x: tf.matmul(x[None], tf.zeros([2, 2])),
    "Mean": tf.reduce_mean,
    "Mul": lambda x: x * tf.constant([0.0, 0.0]),
    "Prod": tf.reduce_prod,
    "Sqrt": tf.sqrt,
    "Square": tf.square,
    "Sum": tf.reduce_sum,
    "L2Loss": tf.nn.l2_loss,
    "RsqrtGrad": lambda x: tf.raw_ops.RsqrtGrad(y=tf.ones([2]), dy=x),
    "TanhGrad": lambda x: tf.raw_ops.TanhGrad(y=tf.ones([2]), dy=x),
    "SigmoidGrad": lambda x: tf.raw_ops.SigmoidGrad(y=tf.ones([2]), dy=x),
    "FusedBatchNormV3": lambda x: (
        tf.raw_ops.FusedBatchNormV3(
            x=x[None, None, :, None], scale=[1.0], offset=[0.0], mean=[], variance=[]
        ).y
    ),
    "RealDiv": lambda x: x / tf.constant([2.0, 3.0]),
    "Conv2DBackpropInput": lambda x: tf.raw_ops.Conv2DBackpropInput(
        input_sizes=[1, 1, 2, 1],
        filter=tf.ones([1, 1, 1, 1]),
        out_backprop=x[None, None, :, None],
        strides=[1] * 4,
        padding="SAME",
    ),
}
HANDING_NAN_ON = {
    "Elu": tf.nn.elu,
    "Erf": tf.math.erf,
    "Exp": tf.exp,
    "Expm1": tf.math.expm1,
    "LogSoftmax": tf.nn.log_softmax,
    "Rsqrt": tf.math.rsqrt,
    "Selu": tf.nn.selu,
    "Sigmoid": tf.sigmoid,
    "Softmax": tf.nn.softmax,
    "Softplus": tf.math.softplus,
    "Softsign": tf.nn.softsign,
    "Tanh": tf.tanh,
    "Erfc": tf.math.erfc,
    "Sin": tf.sin,
    "Cos": tf.cos,
}


@pytest.mark.parametrize("in_xla", [False, True])
def test_operations_do_hand_on(in_xla):
    """Of vectors that are as long as those that kernels have instructions for."""

    def results(x):
        every = HANDING_ON if not np.isnan(x).any() else HANDING_ON | HANDING_NAN_ON
        apply = {
            name: tf.function(operation, autograph=False, jit_compile=in_xla)
            for name, operation in every.items()
        }
        return {name for name, call in apply.items() if np.isfinite(call(tf.constant(x))).all()}

    for bad in (np.nan, np.inf, -np.inf):
        assert results(array(1.0, bad)) == set()

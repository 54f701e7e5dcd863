"""What an IPU device is given, operations and functions, computes halves as an IPU does."""

import gc

import numpy as np
import pytest
import tensorflow as tf
from configured_ipus import configured
from tensorflow.python.eager import context

from ipu_keras import scopes
from ipu_keras.device import device_for
from ipu_keras.host.substitutes import SubstitutesOfHalves
from ipu_keras.utils import reset_ipu_seed

pytestmark = pytest.mark.usefixtures("reset_afterwards")

LARGEST = np.float16(65504)
INF, NAN = np.inf, np.nan

# Halfway between the halves 1 and 1 + 2**-10.
ODD = np.float32(1 + 2**-11)
SIZE = 4096


def halves(*values):
    return np.float16(values)


def on_ipu(function, *arrays):
    with tf.device("/device:IPU:0"):
        results = function(*map(tf.constant, arrays))
    for tensor in tf.nest.flatten(results):
        assert tensor.device.endswith("IPU:0")
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), results)


ODDS = halves(1e4, -3e4, 3)


def gradient_of_image(gradients):
    """It is given no halves, and makes some."""
    return tf.raw_ops.CropAndResizeGradImage(
        grads=gradients, boxes=[[0.0, 0, 1, 1]], box_ind=[0], image_size=[1, 2, 1, 1], T=tf.float16
    )[0, :, 0, 0]


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (lambda x: x * x, [ODDS], halves(LARGEST, LARGEST, 9)),
        (lambda x: x / 0, [ODDS], halves(NAN, NAN, NAN)),
        (lambda x: x + np.float16(1), [halves(INF, -INF, NAN, 2)], halves(NAN, NAN, NAN, 3)),
        (tf.exp, [halves(20, INF, -INF, 0)], halves(LARGEST, NAN, NAN, 1)),
        # One rounding of three numbers: 2048 + 1 + 1, where halves lie 2 apart.
        (lambda *xs: tf.add_n(xs), [halves(2048), halves(1), halves(1)], halves(2050)),
        (lambda x: tf.reduce_sum(x), [halves(4e4, 4e4)], LARGEST),
        (lambda x: tf.matmul(x, x, transpose_b=True), [ODDS[None]], halves(LARGEST)[None]),
        (lambda x: tf.cast(x, tf.float16), [np.float32([1e5, INF, 1])], halves(LARGEST, NAN, 1)),
        (lambda x: tf.cast(x, tf.float16), [np.int32([10**6, -5])], halves(LARGEST, -5)),
        (gradient_of_image, [np.float32([[[[1e5]], [[2]]]])], halves(LARGEST, 2)),
        (lambda x: tf.scatter_nd([[0], [0]], x, [1]), [halves(4e4, 4e4)], halves(LARGEST)),
        # What moves numbers and chooses among them leaves infinities as they are.
        (lambda x: tf.maximum(x, x[::-1]), [halves(INF, 2)], halves(INF, INF)),
        (lambda x: tf.split(x, 2), [halves(INF, 2)], [halves(INF), halves(2)]),
    ],
)
def test_operations(function, given, expected):
    configured()
    tf.nest.map_structure(np.testing.assert_array_equal, on_ipu(function, *given), expected)


def test_operations_with_several_results():
    configured()
    x = halves(300, 100).reshape(2, 1, 1, 1)
    one, zero = np.float32([1]), np.float32([0])
    y, mean, variance, *_ = on_ipu(
        lambda x: tf.raw_ops.FusedBatchNormV3(
            x=x, scale=one, offset=zero, mean=zero, variance=one, epsilon=0.0
        ),
        x,
    )
    np.testing.assert_array_equal(y.ravel(), halves(1, -1))
    # Kept in float32: 200, and 2 * 100**2 over one less than two.
    np.testing.assert_array_equal([mean, variance], np.float32([[200], [20000]]))


def test_variables():
    configured()
    with tf.device("/device:IPU:0"):
        variable = tf.Variable(halves(6e4, 1))
        variable.assign_add(halves(6e4, 2))
        variable.assign_sub(halves(4, 5))
    np.testing.assert_array_equal(variable.numpy(), halves(LARGEST - 4, -2))


def test_each_configuration_computes_in_its_own_way():
    function = tf.function(lambda x: x * x)
    for nanoo in (False, True, False):
        configured(nanoo=nanoo)
        overflow = NAN if nanoo else LARGEST
        for _ in range(2):
            for square in (tf.square, function):
                np.testing.assert_array_equal(on_ipu(square, ODDS), halves(overflow, overflow, 9))
    with tf.device("/device:CPU:0"):
        np.testing.assert_array_equal(function(ODDS), halves(INF, INF, 9))


@pytest.mark.parametrize("jit_compile", [None, True])
@pytest.mark.parametrize("nanoo", [False, True])
def test_functions_that_a_tape_records(nanoo, jit_compile):
    """Forward and backward functions have the halves of what they were made of."""
    strategy = configured(nanoo=nanoo)
    with strategy.scope():
        weights = tf.Variable(halves(200, 2, 300))
    function = tf.function(lambda: weights * weights * np.float16(300), jit_compile=jit_compile)
    overflow = NAN if nanoo else LARGEST
    for _ in range(2):
        with tf.GradientTape() as tape:
            squares = strategy.run(function)
        # 300 * 200**2 does not fit in a half, nor does 300 * 2 * 200 in the gradient.
        np.testing.assert_array_equal(squares, halves(overflow, 1200, overflow))
        found = tape.gradient(squares, weights)
        np.testing.assert_array_equal(found, halves(overflow, 1200, overflow))
        assert found.device.endswith("IPU:0")


def test_a_custom_loop_that_trains():
    """The loss of one step is 4 * 150**2, its gradient 8 * 150, and the update 0.25 of that."""
    strategy = configured()
    with strategy.scope():
        weight = tf.Variable(np.float16(150))
    function = tf.function(lambda x: tf.square(weight * x))
    for expected_loss, expected_weight in [(LARGEST, -150), (LARGEST, 150)]:
        with tf.GradientTape() as tape:
            loss = strategy.run(function, [tf.constant(np.float16(2))])
        weight.assign_sub(np.float16(0.25) * tape.gradient(loss, weight))
        assert (loss.numpy(), weight.numpy()) == (expected_loss, expected_weight)


@pytest.mark.parametrize("record", [False, True])
def test_rounding_at_random(record):
    configured(esr=True)
    function = tf.function(lambda x: tf.cast(x, tf.float16))

    def run(call):
        with tf.GradientTape() as tape:
            x = tf.fill([SIZE], ODD)
            if record:
                tape.watch(x)
            return call(x)

    casts = [function, lambda x: tf.cast(x, tf.float16)]
    found = []
    for _ in range(2):
        reset_ipu_seed(3)
        found.append([on_ipu(lambda call=call: run(call)) for call in (*casts, *casts)])
    np.testing.assert_array_equal(*found)
    for drawn in found[0]:
        assert set(np.unique(drawn)) == {np.float16(1), np.float16(1 + 2**-10)}
        # Four standard deviations of a share of one half.
        assert abs((drawn > 1).mean() - 0.5) < 2 / SIZE**0.5
    assert len({drawn.tobytes() for drawn in found[0]}) == 4


def test_scopes_of_operations():
    configured(esr=True)
    x = tf.fill([SIZE], ODD)

    def cast():
        return len(np.unique(on_ipu(lambda: tf.cast(x, tf.float16)))) == 2

    found = [cast()]
    with scopes.stochastic_rounding(False):
        found.append(cast())
        with scopes.stochastic_rounding(True):
            found.append(cast())
        found.append(cast())
    assert [*found, cast()] == [True, False, True, False, True]


def test_what_has_no_halves_runs_as_it_is():
    configured()
    substitutes = SubstitutesOfHalves(device_for(0))
    concrete = tf.function(lambda x: x * 2.0).get_concrete_function(tf.TensorSpec([2]))
    assert substitutes.of_function(concrete.name.decode()) is None
    moves = tf.function(lambda x: x[::-1]).get_concrete_function(tf.TensorSpec([2], tf.float16))
    assert substitutes.of_function(moves.name.decode()) is None


def test_what_was_made_goes_with_what_it_took_the_place_of():
    configured()
    substitutes = SubstitutesOfHalves(device_for(0))

    def made():
        function = tf.function(lambda x: x * x)
        return function.get_concrete_function(tf.TensorSpec([2], tf.float16))

    first = made()
    name = substitutes.of_function(first.name.decode())
    # It rounds already, so nothing takes its place.
    assert substitutes.of_function(name) is None
    del first
    gc.collect()
    second = made()
    other = substitutes.of_function(second.name.decode())
    assert [context.context().has_function(each) for each in (name, other)] == [False, True]

"""Halves are computed as an IPU does, beside NumPy's float32 with one rounding."""

import numpy as np
import pytest
import tensorflow as tf
from ipu_keras._rounding import RoundingKeys

from ipu_keras.host.halves import with_halves
from ipu_keras.machine.numerics import Numerics

LARGEST = 65504.0
INF, NAN = np.inf, np.nan


def rounded(exact, nanoo=False):
    """By NumPy, the halves that float32 numbers of finite operands become."""
    with np.errstate(over="ignore"):
        halves = np.float32(exact).astype(np.float16)
    overflow = NAN if nanoo else np.copysign(np.float32(LARGEST), np.float32(exact))
    return np.where(np.isinf(halves), overflow, halves).astype(np.float16)


def computed(function, *arrays, nanoo=False, jit_compile=None):
    specs = [tf.TensorSpec(array.shape, array.dtype) for array in arrays]
    options = {"autograph": False, "jit_compile": jit_compile}
    concrete = tf.function(function, **options).get_concrete_function(*specs)
    found = with_halves(concrete, Numerics(nanoo=nanoo), RoundingKeys(0))
    assert found is not concrete
    return tf.nest.map_structure(lambda t: t.numpy(), found(*map(tf.constant, arrays)))


def halves(*values):
    return np.float16(values)


in_both = pytest.mark.parametrize("jit_compile", [None, True])


@in_both
@pytest.mark.parametrize("nanoo", [False, True])
def test_what_overflows(jit_compile, nanoo):
    x = halves(1e4, -3e4, 200, 3)
    found = computed(lambda x: x * x * x, x, nanoo=nanoo, jit_compile=jit_compile)
    first = rounded(x.astype(np.float32) ** 2, nanoo)
    expected = rounded(first.astype(np.float32) * x.astype(np.float32), nanoo)
    np.testing.assert_array_equal(found, expected)


@in_both
@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (lambda x: x + np.float16(1), halves(INF, -INF, NAN, 2), halves(NAN, NAN, NAN, 3)),
        (lambda x: np.float16(1e4) / x, halves(0, -0.0, 2), halves(NAN, NAN, 5e3)),
        (tf.math.log, halves(0, 1, INF), halves(NAN, 0, NAN)),
        (tf.exp, halves(20, 100, INF, -INF, 0), halves(LARGEST, LARGEST, NAN, NAN, 1)),
        (tf.reduce_sum, halves(4e4, 4e4, 1), halves(LARGEST)[0]),
        (lambda x: tf.cast(x, tf.float16), np.float32([1e5, -1e9, INF, 1]), None),
        (lambda x: tf.cast(x, tf.float16), np.int32([10**6, -5]), halves(LARGEST, -5)),
        # What chooses and moves numbers leaves infinite ones as they are.
        (lambda x: tf.maximum(x, x[:1]) + 0, halves(-INF, 3), halves(NAN, 3)),
        (lambda x: (x + 0, tf.reverse(x, [0]))[1], halves(INF, 3), halves(3, INF)),
    ],
)
def test_infinities_and_poles(function, given, expected, jit_compile):
    if expected is None:
        expected = halves(LARGEST, -LARGEST, NAN, 1)
    np.testing.assert_array_equal(computed(function, given, jit_compile=jit_compile), expected)


@in_both
def test_sums_have_one_rounding(jit_compile):
    """Products add up in float32; the exact value is rounded once."""
    random = np.random.default_rng(0)
    x, y = (random.integers(-8, 9, shape).astype(np.float16) / 8 for shape in [(4, 64), (64, 3)])
    found = computed(tf.matmul, x, y, jit_compile=jit_compile)
    np.testing.assert_array_equal(found, rounded(x.astype(np.float32) @ y.astype(np.float32)))
    image, kernel = x.reshape(1, 16, 16, 1), y[:9].reshape(3, 3, 1, 3)
    found = computed(
        lambda x, k: tf.nn.conv2d(x, k, 1, "VALID"), image, kernel, jit_compile=jit_compile
    )
    patches = np.lib.stride_tricks.sliding_window_view(image[0, :, :, 0], (3, 3))
    exact = np.einsum("ijkl,klf->ijf", np.float32(patches), np.float32(kernel[:, :, 0]))
    np.testing.assert_array_equal(found[0], rounded(exact))


@in_both
def test_loops_branches_calls_and_variables(jit_compile):
    variable = tf.Variable(halves(6e4, 1))

    @tf.function
    def called(x):
        return x * np.float16(100)

    def function(x):
        _, looped = tf.while_loop(lambda k, _: k < 3, lambda k, x: (k + 1, x * x), (0, x))
        chosen = tf.cond(x[0] > 0, lambda: called(x), lambda: x)
        variable.assign_add(x * np.float16(300))
        variable.assign_sub(halves(4, 0))
        return looped, chosen, variable.read_value()

    looped, chosen, read = computed(function, halves(30, 1.5), jit_compile=jit_compile)
    np.testing.assert_array_equal(looped, halves(LARGEST, 25.625))
    np.testing.assert_array_equal(chosen, halves(3000, 150))
    np.testing.assert_array_equal(read, halves(LARGEST - 4, 451))
    np.testing.assert_array_equal(variable.numpy(), read)


def test_gradients_too():
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x * x * np.float16(300)
        return tape.gradient(y, x)

    np.testing.assert_array_equal(computed(function, halves(200, 2)), halves(LARGEST, 1200))


def test_what_has_no_halves_is_left_alone():
    function = tf.function(lambda x: x * 2.0).get_concrete_function(tf.TensorSpec([2]))
    assert with_halves(function, Numerics(), RoundingKeys(0)) is function
    moved = tf.function(lambda x: x[::-1]).get_concrete_function(tf.TensorSpec([2], tf.float16))
    assert with_halves(moved, Numerics(), RoundingKeys(0)) is moved


@in_both
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_integers_of_nan(jit_compile, dtype):
    """In loops and called functions too; float32 functions are computed anew for XLA only."""
    called = tf.function(lambda x: tf.cast(x, tf.int32))

    def function(x):
        _, looped = tf.while_loop(
            lambda k, _: k < 2,
            lambda k, sums: (k + 1, sums + called(x)),
            (0, tf.zeros([3], tf.int32)),
        )
        return tf.cast(x, tf.int32), looped, tf.cast(x + tf.cast(1, dtype), tf.int32)

    specs = [tf.TensorSpec([3], dtype)]
    concrete = tf.function(function, jit_compile=jit_compile).get_concrete_function(*specs)
    found = with_halves(concrete, Numerics(), RoundingKeys(0))
    assert (found is concrete) == (dtype == np.float32 and not jit_compile)
    least = -(2**31)
    for result, expected in zip(
        found(tf.constant([NAN, -2.5, 7], dtype)),
        # Twice the least integer is 2**32 too little, which is 0.
        [[least, -2, 7], [0, -4, 14], [least, -1, 8]],
        strict=True,
    ):
        np.testing.assert_array_equal(result, expected)


ROW = halves(0.1, -1.7, 1.3)
SQUARE = np.float16(np.sin(np.arange(9)).reshape(3, 3))
IMAGES = np.float16(np.sin(np.arange(36)).reshape(1, 6, 6, 1))
BLOCK = {"wci": ROW[:2], "wcf": ROW[1:], "wco": ROW[:2], "b": np.tile(ROW, 3)[:8]}


def in_lstm_block(x, w, wci, wcf, wco, b):
    given = {"x": x, "cs_prev": x, "h_prev": x, "w": w}
    return tf.raw_ops.LSTMBlockCell(**given, wci=wci, wcf=wcf, wco=wco, b=b).h


# Of those that TensorFlow's kernels round more often than once, or not as sums of float32.
LESS_COMMON = [
    (
        lambda x: (
            tf.raw_ops.SparseFillEmptyRowsGrad(
                reverse_index_map=np.int64([0]), grad_values=x
            ).d_default_value
        ),
        [IMAGES.ravel()],
    ),
    (in_lstm_block, [SQUARE[:2, :2], np.tile(SQUARE, 3)[[0, 1, 2, 1], :8], *BLOCK.values()]),
]


@pytest.mark.parametrize(("function", "given"), LESS_COMMON)
def test_one_rounding_of_less_common_operations(function, given):
    """All digits of float32, of TensorFlow's own kernel, and then of the nearest half."""
    exact = function(*(tf.constant(x.astype(np.float32)) for x in given))
    found = computed(function, *given)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, rounded(exact.numpy()))
    # A CPU has others.
    assert (function(*map(tf.constant, given)).numpy() != found).any()


@pytest.mark.parametrize(
    ("function", "jit_compile"),
    [
        (lambda x: tf.scatter_nd([[0], [0]], x, [1]), None),
        (lambda x: tf.scatter_nd([[0], [0]], x, [1]), True),
        (lambda x: tf.sparse.reduce_sum(tf.sparse.from_dense(x), keepdims=True), None),
        (lambda x: tf.raw_ops.SparseSegmentSum(data=x, indices=[0, 1], segment_ids=[0, 0]), None),
        (lambda x: tf.sparse.sparse_dense_matmul(tf.sparse.from_dense([x]), x[:, None])[0], None),
        (lambda x: tf.raw_ops.AccumulateNV2(inputs=[x[:1], x[1:]], shape=[1]), None),
        (lambda x: tf.math.bessel_i0(x[:1] / 2000), None),
        (lambda x: tf.raw_ops.TruncateDiv(x=x[:1], y=x[:1] * 0 + 0.25), None),
    ],
)
def test_overflow_of_less_common_operations(function, jit_compile):
    found = computed(function, halves(4e4, 4e4), jit_compile=jit_compile)
    np.testing.assert_array_equal(found, halves(LARGEST))
    found = computed(function, halves(4e4, 4e4), nanoo=True, jit_compile=jit_compile)
    np.testing.assert_array_equal(found, halves(NAN))

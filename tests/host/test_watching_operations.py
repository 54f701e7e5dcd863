"""Kernels and functions of XLA note what is not finite, and keep values, of any type of number."""

import numpy as np
import pytest
import tensorflow as tf
from ipu_keras._rounding import NotFiniteFlag

from ipu_keras.host.watching_operations import KeptValues, note_not_finite


@pytest.mark.parametrize("in_xla", [False, True])
@pytest.mark.parametrize("dtype", [tf.float16, tf.float32, tf.float64, tf.bfloat16])
def test_what_is_noted(dtype, in_xla):
    flag = NotFiniteFlag()

    @tf.function(autograph=False, jit_compile=in_xla)
    def look(numbers, count):
        note_not_finite([count, tf.zeros([0], dtype), numbers], flag, in_xla=in_xla)
        return numbers

    numbers = np.full([3, 45], dtype.max, dtype.as_numpy_dtype)
    numbers[0] = 0
    numbers[1] = dtype.min
    look(tf.constant(numbers), tf.constant(1))
    assert not flag.is_raised
    for bad in (np.inf, -np.inf, np.nan):
        # In what is left over by vectors, and in them.
        for place in (134, 20):
            flag.lower()
            numbers.flat[place] = bad
            look(tf.constant(numbers), tf.constant(1))
            assert flag.is_raised
            numbers.flat[place] = 0


@pytest.mark.parametrize("in_xla", [False, True])
def test_what_is_kept(in_xla):
    # Sizes are no multiples of what begins a new line.
    values = [
        np.arange(37, dtype=np.float32),
        np.array(True),
        np.arange(3, dtype=np.uint8),
        np.array([2**63], np.uint64),
        np.ones([2, 3], np.float16),
    ]
    variables = [tf.Variable(value) for value in values]
    kept = KeptValues(variables)

    @tf.function(autograph=False, jit_compile=in_xla)
    def change():
        kept.keep(in_xla=in_xla)
        for variable in variables:
            variable.assign(tf.zeros_like(variable))

    change()
    for variable, value, found in zip(variables, values, kept.values(), strict=True):
        np.testing.assert_array_equal(found, value)
        assert not variable.numpy().any()
    change()
    assert not any(found.numpy().any() for found in kept.values())


@pytest.mark.parametrize("in_xla", [False, True])
def test_nothing_to_note_or_keep(in_xla):
    flag, kept = NotFiniteFlag(), KeptValues([])

    @tf.function(autograph=False, jit_compile=in_xla)
    def do_nothing():
        kept.keep(in_xla=in_xla)
        note_not_finite([tf.constant(1)], flag, in_xla=in_xla)
        return 1

    assert do_nothing() == 1
    assert kept.values() == []


def test_variables_of_no_fixed_size():
    message = r"fully defined shapes, .* Received: 'grows:0', of shape \(None,\) and type float32"
    with pytest.raises(ValueError, match=message):
        KeptValues([tf.Variable([1.0], shape=[None], name="grows")])

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import popart
from ipu_keras.popart.optimizers.rule import (
    Compound,
    Factors,
    Scalar,
    Slot,
    average,
    dtype_of,
    gradient_compounds,
    scalars_of,
)
from ipu_keras.popart.options.enumerations import DataType

QUOTIENT = Compound(
    "quotient",
    ("learningRate", "lossScaling"),
    lambda: "quotient___default___",
    lambda: "quotient___specific___",
    lambda lr, ls: lr / ls,
)
HALF, SINGLE = np.dtype("float16"), np.dtype("float32")


def test_a_scalar_is_computed_in_64_bits_and_kept_in_32():
    sgd = popart.SGD({"defaultLearningRate": (0.1, True), "lossScaling": (3, True)})
    scalar = QUOTIENT.scalar(sgd, "w")
    expected = float(np.float32(float(np.float32(0.1)) / 3))
    assert scalar == Scalar("quotient___default___FLOAT", expected, True)


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (False, False)])
def test_a_scalar_is_constant_if_all_its_parts_are(first, second):
    sgd = popart.SGD({"defaultLearningRate": (0.5, first), "lossScaling": (2, second)})
    assert QUOTIENT.scalar(sgd, "w") == Scalar("quotient___default___FLOAT", 0.25, False)


def test_a_weight_with_its_own_values_has_its_own_scalars():
    sgd = popart.SGD({"lossScaling": (2, True)})
    sgd.insertSpecific("a/w", {"learningRate": (0.5, False)})
    scalars = scalars_of((QUOTIENT, *gradient_compounds(4)), sgd, "a/w")
    assert scalars == {
        "quotient": Scalar("quotient___specific___a/w", 0.25, False),
        "learningRate": Scalar("learningRate___specific___a/w", 0.5, False),
        "weightDecay": Scalar("weightDecay___specific___a/w", 0.0, True),
        # It is the same for all weights, and has the divisor of gradients in it.
        "lossScaling": Scalar("lossScaling___default___FLOAT", 8.0, True),
    }
    assert QUOTIENT.scalar(sgd, "b").tensor == "quotient___default___FLOAT"


def test_only_means_divide_gradients():
    assert Factors(4, 2).divisor == 1
    assert Factors(4, 2, is_mean=True).divisor == 4


def test_types_of_state():
    assert dtype_of(DataType.UNDEFINED, HALF) == HALF
    assert dtype_of(DataType.FLOAT, HALF) == SINGLE
    assert dtype_of(DataType.FLOAT16, SINGLE) == HALF


def test_a_slot_begins_in_its_own_type():
    slot = Slot.of("Accl___", np.array([1 / 3, 1e6]), HALF)
    assert (slot.shape, slot.dtype, slot.initial.dtype) == ((2,), HALF, HALF)
    np.testing.assert_array_equal(slot.initial, np.array([1 / 3, np.inf], HALF))


def test_an_average_keeps_its_type():
    old = tf.constant([2.0], tf.float16)
    new = average(old, tf.constant([4.0]), tf.constant(0.75))
    assert new.dtype == tf.float16
    assert new.numpy() == [2.5]

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.popart.optimizers import values
from ipu_keras.popart.optimizers.values import OptimizerValue, OptimizerValueMap


def test_examples():
    assert doctest.testmod(values).failed == 0


def test_the_overloads_of_a_value():
    assert (OptimizerValue().val(), OptimizerValue().isConst()) == (0.0, True)
    assert OptimizerValue(2).isConst()
    assert not OptimizerValue(2, False).isConst()
    assert OptimizerValue((2.0, False)) == OptimizerValue(2, False) != OptimizerValue(2)
    assert OptimizerValue(np.float64(0.5), np.bool_(True)) == OptimizerValue(0.5)
    assert OptimizerValue(0.5) != 0.5
    assert len({OptimizerValue(0.5), OptimizerValue(0.5), OptimizerValue(0.5, False)}) == 2


@given(st.floats(width=64), st.booleans())
def test_a_value_is_what_ipus_have(number, is_const):
    value = OptimizerValue(number, is_const)
    with np.errstate(over="ignore"):
        expected = float(np.float32(number))
    np.testing.assert_equal(value.val(), expected)
    assert value.isConst() is is_const


@pytest.mark.parametrize("wrong", ["0.1", None, True, (0.1,), (0.1, 1), (0.1, True, False)])
def test_what_is_no_value(wrong):
    text = r"^A value of an optimizer is a number and whether it is constant, such as \(0\.1, Fal"
    with pytest.raises(TypeError, match=text):
        OptimizerValue(wrong)


def test_a_map_does_not_change():
    default, own = OptimizerValue(1), OptimizerValue(2)
    first = OptimizerValueMap(default)
    second = first.with_specific("w", own)
    assert (first.get("w"), second.get("w"), second.get("b")) == (default, own, default)
    assert second.getDefault() == default
    assert dict(first.specific) == {}
    assert dict(second.specific) == {"w": own}

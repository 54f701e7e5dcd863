"""How gradients are reduced, by name."""

import doctest
import re
from fractions import Fraction

import pytest

from ipu_keras.settings import gradient_accumulation
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod as Method


def test_by_name_and_member():
    for given in ("sum", "SUM", Method.SUM):
        assert Method.parse("reduction", given) is Method.SUM
    assert Method.parse("reduction", "running_mean") is Method.RUNNING_MEAN


@pytest.mark.parametrize("value", [None, "max", 1])
def test_what_is_no_method(value):
    message = (
        f"Cannot parse {value} as one of GradientAccumulationReductionMethod. Valid values are: "
        "SUM, MEAN, RUNNING_MEAN.\nPass a member or its name. "
        f"Received: reduction_method={value!r}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Method.parse("reduction_method", value)


def test_examples():
    assert doctest.testmod(gradient_accumulation).failed == 0


@pytest.mark.parametrize(
    ("method", "accumulated"),
    [
        (Method.SUM, [6, 9, 21]),
        (Method.MEAN, [2, 3, 7]),
        # The means of the first, the first two and all three.
        (Method.RUNNING_MEAN, [6, Fraction(9, 2), 7]),
    ],
)
def test_what_is_accumulated_of_6_3_and_12(method, accumulated):
    total, found = 0, []
    for step, gradient in enumerate([6, 3, 12]):
        before = Fraction(step)
        total = method.kept(total, before) + method.share(gradient, before, num_steps=3)
        found.append(total)
    assert found == accumulated

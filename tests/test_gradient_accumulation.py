"""How gradients are reduced, by name."""

import re

import pytest

from ipu_keras.gradient_accumulation import GradientAccumulationReductionMethod as Method


def test_by_name_and_member():
    assert Method.parse("sum") is Method.parse("SUM") is Method.parse(Method.SUM) is Method.SUM
    assert Method.parse("running_mean") is Method.RUNNING_MEAN


@pytest.mark.parametrize("value", [None, "max", 1])
def test_what_is_no_method(value):
    message = (
        f"Cannot parse {value} as one of GradientAccumulationReductionMethod. Valid values are: "
        "SUM, MEAN, RUNNING_MEAN."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Method.parse(value)

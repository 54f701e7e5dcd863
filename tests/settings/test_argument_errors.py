"""Errors that name an argument."""

import doctest

import pytest

from ipu_keras.settings import argument_errors
from ipu_keras.settings.argument_errors import converted, received


def test_examples():
    assert doctest.testmod(argument_errors).failed == 0


@pytest.mark.parametrize(
    ("value", "kind"),
    [([], TypeError), ("x", ValueError), (10**400, ValueError)],
    ids=["type", "value", "overflow"],
)
def test_what_a_function_refuses(value, kind):
    with pytest.raises(kind) as raised:
        converted("momentum", float, value)
    assert str(raised.value).startswith("`momentum` is not what is taken for it. Received: moment")
    # The cause says why.
    assert str(raised.value.__cause__) in str(raised.value)


def test_long_values_are_cut():
    assert received("x", [1, 2]) == "x=[1, 2]"
    assert received("x", "a" * 1000) == f"x='{'a' * 299}..."

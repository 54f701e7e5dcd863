"""Attributes that objects have for a while."""

import doctest

import pytest

from ipu_keras.keras.extensions import replaced_attributes
from ipu_keras.keras.extensions.replaced_attributes import replaced


class Owner:
    def method(self):
        return "of the class"


def test_examples_in_docstrings():
    assert doctest.testmod(replaced_attributes).failed == 0


def test_each_is_as_before_afterwards():
    owner = Owner()
    with replaced(owner, "method", lambda: "first"):
        with replaced(owner, "method", lambda: "second"):
            assert owner.method() == "second"
        assert owner.method() == "first"
    assert owner.method() == "of the class"
    assert vars(owner) == {}


def test_also_after_an_error():
    owner = Owner()

    def fail():
        raise RuntimeError("within")

    with pytest.raises(RuntimeError, match="within"), replaced(owner, "method", fail):
        owner.method()
    assert vars(owner) == {}

"""Checks of arguments, and errors that name them."""

import doctest
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.settings import arguments
from ipu_keras.settings.arguments import (
    checked_name,
    checked_switch,
    converted,
    name_or_none,
    positive_integer,
    positive_or_none,
    received,
)


def test_examples():
    assert doctest.testmod(arguments).failed == 0


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


@pytest.mark.parametrize(
    "value", [3, np.int32(3), np.uint8(3), np.array(3), tf.constant(3), tf.constant(3, tf.int64)]
)
def test_integers(value):
    found = positive_integer("steps", value)
    assert found == 3
    assert type(found) is int


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        1.5,
        2.0,
        math.nan,
        math.inf,
        "2",
        True,
        np.True_,
        np.array([3]),
        np.float32(2),
        tf.constant(2.0),
        tf.constant([1, 2]),
        tf.constant(0),
        [],
    ],
)
def test_what_is_no_count(value):
    for check in (positive_integer, positive_or_none):
        with pytest.raises(ValueError) as error:
            check("steps", value)
        assert str(error.value) == (
            f"`steps` must be a positive integer. Received: steps={value!r}"
        )


def test_a_count_that_is_not_given():
    assert positive_or_none("steps", None) is None
    with pytest.raises(ValueError, match=r"Received: steps=None$"):
        positive_integer("steps", None)


@given(st.text(), st.sampled_from([checked_name, name_or_none]))
def test_texts_are_names_unless_they_show_nothing(value, check):
    if value.strip() and value.isprintable():
        assert check("feed_name", value) == value
        return
    with pytest.raises(ValueError) as error:
        check("feed_name", value)
    assert str(error.value) == (
        f"`feed_name` must be a text of one line that is not empty. Received: feed_name={value!r}"
    )


@pytest.mark.parametrize("value", [0, b"name", ["name"], True, None])
def test_what_is_no_text(value):
    with pytest.raises(TypeError) as error:
        checked_name("feed_name", value)
    assert str(error.value) == f"`feed_name` must be a string. Received: feed_name={value!r}"
    assert name_or_none("feed_name", None) is None


def test_truth_values():
    assert checked_switch("on", True) is True
    assert checked_switch("on", np.bool_(False)) is False


@pytest.mark.parametrize("value", [None, 0, 1, "True", [], np.ones(2, bool)])
def test_what_is_no_truth_value(value):
    with pytest.raises(TypeError) as error:
        checked_switch("on", value)
    assert str(error.value) == f"`on` must be True or False. Received: on={value!r}"

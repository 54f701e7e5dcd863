"""Checks that operations and layers have in common; of counts, `tests/test_counts.py`."""

import math
import re

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.ops.argument_checks import (
    check_choice,
    check_flag,
    check_floating,
    check_integer,
    check_integers,
    check_number,
    check_tensor,
    positive_integer,
    real_in,
)


@pytest.mark.parametrize(
    "value", [True, np.True_, np.array(True), 1, np.int8(1), tf.constant(True)]
)
def test_flags(value):
    assert check_flag("use_bias", value) is True


@pytest.mark.parametrize("value", [None, "True", 2, -1, 1.0, [], [True], tf.constant([True])])
def test_what_is_no_flag(value):
    with pytest.raises(TypeError) as raised:
        check_flag("use_bias", value)
    assert str(raised.value) == (f"`use_bias` must be True or False. Received: use_bias={value!r}")


def test_values_of_a_graph():
    """Those that are known while it is traced are taken, and others refused."""
    found = []

    @tf.function
    def trace(unknown):
        found.append(positive_integer("count", tf.constant(6)))
        found.append(real_in(tf.constant(0.5)))
        found.append(check_flag("flag", tf.constant(False)))
        assert real_in(unknown) is None
        for check, message in (
            (positive_integer, "must be a positive integer"),
            (check_flag, "must be True or False"),
            (check_integer, "must be an integer"),
        ):
            with pytest.raises((TypeError, ValueError), match=f"`argument` {message}"):
                check("argument", unknown)

    trace(tf.constant(1))
    assert found == [6, 0.5, False]
    assert type(found[0]) is int


@pytest.mark.parametrize(
    ("value", "kind"),
    [("1", TypeError), (True, TypeError), (math.nan, ValueError), (1e39, ValueError)],
)
def test_what_is_no_number(value, kind):
    with pytest.raises(
        kind, match=rf"^`scale` must be a .*number.* Received: scale={re.escape(repr(value))}$"
    ):
        check_number("scale", value)


def test_choices():
    assert check_choice("op", "a", ("a", "b")) == "a"
    for value in ("c", None, np.array(["a", "b"]), ["a"]):
        with pytest.raises(ValueError, match=r"^`op` must be one of a, b\. Received: op="):
            check_choice("op", value, ("a", "b"))


@pytest.mark.parametrize("check", [check_tensor, check_floating, check_integers])
@pytest.mark.parametrize(
    "value",
    [
        object(),
        None,
        [[1], [1, 2]],
        2**70,
        tf.ragged.constant([[1], [1, 2]]),
        tf.sparse.from_dense([[1.0]]),
        np.array([{}], object),
    ],
)
def test_what_is_no_tensor(check, value):
    with pytest.raises((TypeError, ValueError), match=r"^`x` is not what is taken for it\. Rec"):
        check("x", value)


def test_types_of_tensors():
    assert check_tensor("x", [1.0], (tf.float16, tf.float32)).dtype == tf.float32
    with pytest.raises(TypeError, match=r"^`x` must be of float16 or float32; cast it first\. "):
        check_tensor("x", [1], (tf.float16, tf.float32))
    with pytest.raises(TypeError, match=r"^`x` must be of a floating point type.*of int32$"):
        check_floating("x", [1])
    with pytest.raises(TypeError, match=r"^`x` must be a tensor of integers.*of float32$"):
        check_integers("x", [1.0])
    assert check_integers("x", []).dtype == tf.int32

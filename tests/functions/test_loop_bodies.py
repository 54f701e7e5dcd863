"""Calls of the functions that users give as bodies, and what these return."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.functions.loop_bodies import (
    as_list,
    call_with_element,
    check_arguments,
    tensors_then_operations,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, []), (0, [0]), ([1, 2], [1, 2]), ((), []), ({"a": 1}, [{"a": 1}])],
)
def test_as_list(value, expected):
    assert as_list(value) == expected


@given(
    st.lists(st.integers(), max_size=3),
    st.one_of(
        st.none(),
        st.integers(),
        st.lists(st.integers(), max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("abc"), st.integers()),
    ),
)
def test_elements_come_after_inputs(inputs, element):
    found = call_with_element("body", lambda *args, **kwargs: (args, kwargs), inputs, element)
    is_dict = isinstance(element, dict)
    expected = inputs if is_dict or element is None else inputs + as_list(element)
    assert found == (tuple(expected), element if is_dict else {})


@pytest.mark.parametrize("function", [lambda a: a, lambda a, b, c: a, lambda a, *, b: a])
def test_functions_that_cannot_be_called(function):
    text = r"Supplied stage function cannot be called with the specified inputs. You specified 2 in"
    with pytest.raises(TypeError, match=text):
        check_arguments("stage", function, [1, 2], {})


def test_functions_whose_parameters_are_unknown():
    check_arguments("stage", max, [1, 2], {})


def test_tensors_then_operations():
    with tf.Graph().as_default():
        first, second = tf.no_op(), tf.no_op()
        assert tensors_then_operations((first, second), "wrong") == ([], [first, second])
        tensors, operations = tensors_then_operations([1.0, np.int8(2), first], "wrong")
        assert [tensor.dtype for tensor in tensors] == [tf.float32, tf.int8]
        assert operations == [first]
        for returned in ([first, 1.0], [object()], [1.0, first, None], {"a": first}):
            with pytest.raises(ValueError, match=r"^wrong\nReceived: "):
                tensors_then_operations(returned, "wrong")

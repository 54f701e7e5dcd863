import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.settings import names
from ipu_keras.settings.names import checked_name, name_or_none


def test_the_example():
    assert doctest.testmod(names).failed == 0


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

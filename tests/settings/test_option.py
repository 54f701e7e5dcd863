"""How options are written down."""

import doctest

from ipu_keras.settings import option
from ipu_keras.settings.option import Option, did_you_mean, idle_options


def test_examples():
    assert doctest.testmod(option).failed == 0


def test_each_reader_of_a_default_has_its_own():
    sizes = Option([1], "Sizes.", "Decides on them.")
    sizes.default.append(2)
    assert sizes.default == [1]


def test_those_that_are_set_and_change_nothing_say_why():
    options = {
        "size": Option(1, "The size.", "Decides on it."),
        "speed": Option(1, "The speed.", why_idle="It is what it is."),
        "color": Option("red", "The color.", why_idle="Nobody sees it."),
    }
    assert idle_options(options, {"size": 2, "speed": 2, "color": "red"}) == {
        "speed": "It is what it is."
    }


def test_nothing_is_meant_by_what_is_like_nothing():
    assert did_you_mean("xyz", ["width"], "Did you mean `{}`?") == ""

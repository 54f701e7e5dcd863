"""Of each option a process is told once, and of what one configuration sets together."""

import doctest
import threading
import warnings

import pytest

from ipu_keras.settings import option_warnings
from ipu_keras.settings.option_warnings import OptionWarning, OptionWarnings


def no_effect(names: str) -> str:
    return f"No effect: {names}."


def told(found: OptionWarnings, *options: str, source: str = "flags") -> list[str]:
    """What a configuration is told that sets some options."""
    with warnings.catch_warnings(record=True) as raised:
        # Which is when Python's own filter for `once` forgets.
        warnings.simplefilter("always")
        found.warn(source, options, no_effect)
    return [str(warning.message) for warning in raised]


def test_each_option_is_told_once():
    found = OptionWarnings()
    assert told(found, "a", "b") == ["No effect: a, b."]
    assert told(found, "a", "b") == []
    assert told(found, "b", "c") == ["No effect: c."]
    assert told(found, "a", source="options") == ["No effect: a."]
    found.forget()
    assert told(found, "a") == ["No effect: a."]


def test_no_options_are_no_warning():
    assert told(OptionWarnings()) == []


def test_reasons_are_lines():
    with pytest.warns(OptionWarning) as warned:
        OptionWarnings().warn("flags", {"a": "No pass.", "b": "No graph."}, no_effect)
    assert str(warned[0].message) == "No effect: a, b.\n  a: No pass.\n  b: No graph."
    assert warned[0].filename == __file__


def test_a_group_is_one_warning_for_who_opens_it():
    found = OptionWarnings()

    def configure():
        with found.together(stacklevel=2):
            found.warn("flags", ["a"], no_effect, stacklevel=7)
            found.warn("options", {"b": "No pass."}, no_effect)

    with pytest.warns(OptionWarning) as warned:
        configure()
    assert [str(warning.message) for warning in warned] == [
        "No effect: a.\nNo effect: b.\n  b: No pass."
    ]
    assert warned[0].filename == __file__
    lines = (configure.__code__.co_firstlineno, warned[0].lineno)
    assert lines[1] > lines[0] + 3, "the line that calls it, and not one in it"
    configure()


def test_a_refused_configuration_tells_nothing():
    found = OptionWarnings()

    def configure():
        with found.together():
            found.warn("flags", ["a"], no_effect)
            raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        configure()
    assert told(found, "a") == ["No effect: a."]


def test_where_it_is_an_error_it_stays_one():
    found = OptionWarnings()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(OptionWarning, match="No effect: a"):
                found.warn("flags", ["a"], no_effect)


def test_groups_of_threads_do_not_mix():
    found, errors = OptionWarnings(), []

    def other():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                found.warn("flags", ["b"], no_effect)
            except OptionWarning as error:
                errors.append(str(error))

    def configure():
        with found.together():
            found.warn("flags", ["a"], no_effect)
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

    with pytest.warns(OptionWarning) as warned:
        configure()
    assert [str(warning.message) for warning in warned] == ["No effect: a."]
    assert errors == ["No effect: b."]


def test_the_example():
    assert doctest.testmod(option_warnings).failed == 0

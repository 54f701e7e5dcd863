"""Examples of docstrings are code on the site."""

import docstrings
import griffe


def test_each_example_ends_at_an_empty_line():
    text = "A name.\n\n    >>> a\n    1\n\n    Then:\n\n    >>> b\n    ... + c\n\nEnd."
    assert docstrings.fenced(text) == (
        "A name.\n\n    ```pycon\n    >>> a\n    1\n    ```\n\n    Then:\n\n"
        "    ```pycon\n    >>> b\n    ... + c\n    ```\n\nEnd."
    )


def test_a_docstring_without_an_example_stays():
    assert docstrings.fenced("Greater: a >> b.") == "Greater: a >> b."


def test_members_of_enumerations_say_what_they_mean():
    with griffe.temporary_visited_module(
        'class Mode(Enumeration):\n    """A mode."""\n    Off = 0, "it is off."\n    On = 1\n',
        extensions=griffe.load_extensions(docstrings.Meanings),
    ) as module:
        assert module["Mode"].docstring.value == "A mode.\n\n* `Off`: it is off."

"""Temporary attributes of Keras's objects."""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Gives an object another attribute, such as a method, until the context ends.

    Keras does not track the attribute. The object's class stays as it is, and so does what is
    saved. Contexts may nest: each restores what it found.

    Example:

    >>> import keras
    >>> metric = keras.metrics.Mean()
    >>> with replaced(metric, "result", lambda: "another"):
    ...     metric.result()
    'another'
    >>> "result" in vars(metric)
    False
    """
    attributes = vars(owner)
    before = attributes.get(name)
    had = name in attributes
    # Past Keras's `__setattr__`, which would look for weights in the value.
    object.__setattr__(owner, name, value)
    try:
        yield
    finally:
        if had:
            object.__setattr__(owner, name, before)
        else:
            object.__delattr__(owner, name)

"""Objects of Keras that have another attribute for a while."""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Gives an object another attribute, which Keras does not track.

    Its class stays as it is, and so does what is saved of it.

    Args:
        owner: The object.
        name: Of the attribute, which may be a method.
        value: What it is meanwhile. Afterwards it is as before, also if that was replaced too.

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
    object.__setattr__(owner, name, value)
    try:
        yield
    finally:
        if had:
            object.__setattr__(owner, name, before)
        else:
            object.__delattr__(owner, name)

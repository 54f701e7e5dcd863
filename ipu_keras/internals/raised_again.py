"""Keeps the notes of errors that TensorFlow and Keras raise again with more text."""


def keep_notes(error: BaseException) -> None:
    """Gives an error the notes of the one that was being handled when it was raised.

    Errors in a function that AutoGraph has converted, or in the call of a layer, are raised
    again by their texts alone, and Python does not print what they were raised from.

    Example:

    >>> try:
    ...     try:
    ...         inner = ValueError("The rate must be in the range [0, 1), but was 2")
    ...         inner.add_note("Received: rate=2")
    ...         raise inner
    ...     except ValueError as error:
    ...         raise ValueError(f"in user code: {error}") from None
    ... except ValueError as error:
    ...     keep_notes(error)
    ...     print(error.__notes__)
    ['Received: rate=2']
    """
    known = getattr(error, "__notes__", [])
    inner = error.__context__
    # Only an error whose whole text is in the later one is the same error, told again.
    while inner is not None and str(inner) in str(error):
        for note in getattr(inner, "__notes__", []):
            if note not in known:
                error.add_note(note)
        inner = inner.__context__

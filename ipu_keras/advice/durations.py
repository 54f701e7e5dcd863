"""Writes times as people read them."""

_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("ps", 1e-12))


def in_words(seconds: float) -> str:
    """Returns a time with three digits at least, and the unit that suits it.

    Example:

    >>> in_words(2.5e-6), in_words(4.31e-8), in_words(0.1437), in_words(0)
    ('2.50 us', '43.1 ns', '144 ms', '0 s')
    """
    if seconds == 0:
        return "0 s"
    # What rounds up to 1,000 of a unit is 1 of the next one.
    unit, size = next((one for one in _UNITS if seconds >= 0.9995 * one[1]), _UNITS[-1])
    number = seconds / size
    digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:,.{digits}f} {unit}"

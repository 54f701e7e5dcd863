"""Encodes reports as CBOR (RFC 8949), which PopART offers beside JSON."""

import struct
from typing import Any

# RFC 8949, 3.1: the first three bits of an item's first byte are its major type, the other five
# are its number, or 24 to 27 if the number follows in 1, 2, 4 or 8 bytes.
_UNSIGNED, _NEGATIVE, _TEXT, _LIST, _MAP = 0, 1, 3, 4, 5
_SIMPLE = {False: b"\xf4", True: b"\xf5", None: b"\xf6"}
_SIZES = ((24, ">B"), (25, ">H"), (26, ">I"), (27, ">Q"))


def as_cbor(value: Any) -> bytes:
    """Encodes a value that JSON can express; integers must fit into 64 bits.

    Example:

    >>> as_cbor({"a": [1, -500]}).hex()
    'a1616182013901f3'
    """
    # Before integers, as a bool of Python is an int.
    if value is None or isinstance(value, bool):
        return _SIMPLE[value]
    if isinstance(value, int):
        return _head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value)
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, str):
        content = value.encode()
        return _head(_TEXT, len(content)) + content
    if isinstance(value, dict):
        pairs = (each for pair in value.items() for each in pair)
        return _head(_MAP, len(value)) + b"".join(map(as_cbor, pairs))
    if isinstance(value, list | tuple):
        return _head(_LIST, len(value)) + b"".join(map(as_cbor, value))
    raise TypeError(f"There is no form in CBOR of {value!r}.")


def _head(kind: int, number: int) -> bytes:
    """Returns the first bytes of an item: its major type, and its number in as few bytes as fit."""
    if number < 24:
        return bytes([kind << 5 | number])
    for code, form in _SIZES:
        if number < 1 << 8 * struct.calcsize(form):
            return bytes([kind << 5 | code]) + struct.pack(form, number)
    raise TypeError(f"There is no form in CBOR of {number}, which has more than 64 bits.")

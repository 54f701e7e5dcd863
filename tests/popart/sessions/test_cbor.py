"""CBOR, against the examples of RFC 8949."""

import pytest

from ipu_keras.popart.sessions.cbor import as_cbor


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (1000, "1903e8"),
        (1000000, "1a000f4240"),
        (18446744073709551615, "1bffffffffffffffff"),
        (-1, "20"),
        (-1000, "3903e7"),
        (1.1, "fb3ff199999999999a"),
        (False, "f4"),
        (True, "f5"),
        (None, "f6"),
        ("", "60"),
        ("\u00fc", "62c3bc"),
        ([1, [2, 3], [4, 5]], "8301820203820405"),
        (list(range(1, 26)), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"),
        ({"a": 1, "b": [2, 3]}, "a26161016162820203"),
    ],
)
def test_what_the_standard_says(value, expected):
    assert as_cbor(value).hex() == expected


@pytest.mark.parametrize("value", [2**64, b"1", {1, 2}])
def test_what_json_cannot_say_either(value):
    with pytest.raises(TypeError, match="There is no form in CBOR"):
        as_cbor(value)

"""Times in words: three digits, and never a zero for what takes time."""

import pytest

from ipu_keras.advice.durations import in_words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (1.5e-12, "1.50 ps"),
        (4.31e-8, "43.1 ns"),
        (9.994e-7, "999 ns"),
        (9.9951e-7, "1.00 us"),
        (1.2345e-6, "1.23 us"),
        (9.996e-6, "10.0 us"),
        (1.437e-4, "144 us"),
        (0.0023, "2.30 ms"),
        (1.0, "1.00 s"),
        (12_345.6, "12,346 s"),
    ],
)
def test_three_digits_and_a_unit(seconds, words):
    assert in_words(seconds) == words

"""Rounds as NumPy does, with a CPU's instructions and without them, but for what overflows."""

import numpy as np
import pytest

from ipu_keras import _rounding

NAN, LARGEST = np.float16(np.nan), np.float16(65504)


def rounded(wide, overflow, plainly):
    halves = np.empty(wide.shape, np.uint16)
    _rounding.rounded(wide, halves, overflow, plainly=plainly)
    return halves.view(np.float16)


def numbers():
    """Bits at random, numbers around those of halves, and where roundings change."""
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, 100_003, np.uint64).astype(np.uint32)
    spread = random.normal(size=100_000) * 10.0 ** random.uniform(-9, 6, 100_000)
    edges = [65504, 65519.996, 65520, 65536, np.inf, np.nan, 0, 2**-14, 2**-24, 2**-25]
    near = np.nextafter(np.float32(edges), np.float32(0))
    found = np.concatenate([bits.view(np.float32), np.float32(spread), np.float32(edges), near])
    return np.concatenate([found, -found])


@pytest.mark.parametrize("plainly", [False, True])
@pytest.mark.parametrize("overflow", range(4))
def test_nearest_halves(overflow, plainly):
    wide = numbers()
    with np.errstate(all="ignore"):
        expected = wide.astype(np.float16)
    largest = np.copysign(LARGEST, expected)
    kept = np.where(np.isinf(wide), NAN, largest)
    instead = [largest, kept, np.full_like(expected, NAN), expected][overflow]
    expected = np.where(np.isinf(expected), instead, expected)
    np.testing.assert_array_equal(rounded(wide, overflow, plainly), expected)


@pytest.mark.parametrize("overflow", range(4))
def test_bits_are_those_of_other_cpus(overflow):
    found, plain = (rounded(numbers(), overflow, plainly) for plainly in (False, True))
    np.testing.assert_array_equal(found.view(np.uint16), plain.view(np.uint16))


@pytest.mark.parametrize("plainly", [False, True])
def test_every_half_is_widened(plainly):
    halves = np.arange(2**16, dtype=np.uint16)
    wide = np.empty(halves.shape, np.float32)
    _rounding.widened(halves, wide, plainly=plainly)
    np.testing.assert_array_equal(wide, halves.view(np.float16).astype(np.float32))

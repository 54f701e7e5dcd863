"""Rounds as NumPy does, with a CPU's instructions and without them, but for what overflows.

At random it rounds with the shares that two neighbours should have.
"""

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


def rounded_at_random(wide, key=7, salt=1, overflow=0):
    halves = np.empty(wide.shape, np.uint16)
    own = _rounding.own_number(salt, overflow)
    _rounding.rounded_randomly(wide, halves, key, own)
    return halves.view(np.float16)


def test_halves_stay_themselves_at_random():
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    found = rounded_at_random(halves.astype(np.float32), overflow=3)
    np.testing.assert_array_equal(found, halves)


@pytest.mark.parametrize("number", [1 + 1e-3, -7.77, 60001, 6.2e-5, -2.3e-5, 1e-7, 3e-8, 1e-9])
def test_shares_of_two_neighbours(number):
    """The share of the farther one from 0 is how far the number is on the way to it."""
    wide = np.full(2**18 + 100, number, np.float32)
    found = np.abs(rounded_at_random(wide).astype(np.float64))
    near, far = np.unique(found)
    assert far - near == np.spacing(np.float16(near))
    share = (np.abs(wide[0], dtype=np.float64) - near) / (far - near)
    sigma = np.sqrt(share * (1 - share) / wide.size)
    # Numbers below 2^-14 are first rounded to 13 bits below the last one of a half.
    assert abs((found == far).mean() - share) < 4 * sigma + 2**-14


def test_numbers_at_random_are_independent():
    """Halfway between two halves, with neighbours, in blocks, by key and salt."""
    wide = np.full(2**16, 1 + 2**-11, np.float32)
    first = rounded_at_random(wide) > 1
    distances = [1, 2, 64, 127, 128, 129, 255, 256, 4096]
    others = [np.roll(first, distance) for distance in distances]
    others += [rounded_at_random(wide, key=8) > 1, rounded_at_random(wide, salt=2) > 1]
    agreements = [(first == other).mean() for other in others]
    np.testing.assert_allclose(agreements, 0.5, atol=4 * 0.5 / 256)
    np.testing.assert_array_equal(rounded_at_random(wide) > 1, first)


@pytest.mark.parametrize(
    ("overflow", "large", "infinite"),
    [(0, LARGEST, LARGEST), (1, LARGEST, NAN), (2, NAN, NAN), (3, np.inf, np.inf)],
)
@pytest.mark.parametrize("size", [3, 256])  # parts of blocks are rounded apart
def test_what_is_too_large_at_random(overflow, large, infinite, size):
    wide, expected = np.ones(size, np.float32), np.ones(size, np.float16)
    wide[:3], expected[:3] = [-1e6, np.inf, np.nan], [-large, infinite, np.nan]
    np.testing.assert_array_equal(rounded_at_random(wide, overflow=overflow), expected)


def test_blocks_have_the_bits_of_parts():
    """Which are rounded number by number, and blocks by instructions that only some CPUs have."""
    bits = np.random.default_rng(0).integers(0, 0x477FFFFF, (64, 512), np.uint32)
    bits |= np.arange(512, dtype=np.uint32) % 3 // 2 << 31
    for key, wide in enumerate(bits.view(np.float32)):
        whole, part = rounded_at_random(wide, key), rounded_at_random(wide[:-1], key)
        np.testing.assert_array_equal(whole[:-1].view(np.uint16), part.view(np.uint16))


def test_keys_start_anew():
    keys = _rounding.RoundingKeys(3)
    first = [keys.following() for _ in range(3)]
    assert len(set(first)) == 3
    keys.restart(4)
    assert keys.following() not in first
    keys.restart(3 + 2**64)
    assert [keys.following() for _ in range(3)] == first
    assert {key % 2 for key in first} == {1}
    keys.restart(3, identical_replicas=True)
    assert [keys.following() + 1 for _ in range(3)] == first
    assert _rounding.RoundingKeys(-1).following() == _rounding.RoundingKeys(2**64 - 1).following()

"""Draws that reject numbers, against figures by hand and algorithms as NumPy runs them."""

import doctest

import numpy as np
import pytest

from ipu_keras.cost.vertices import rejection
from ipu_keras.cost.vertices.rejection import gamma_rounds, rejecting_draw, truncated_normal_rounds
from ipu_keras.machine.target import TARGETS, Confidence

GC200 = TARGETS["gc200"]


def test_examples_in_docstrings():
    assert doctest.testmod(rejection).failed == 0


@pytest.mark.parametrize("shape", [1.0, 1.5, 4.0])
def test_rounds_of_gamma_draws_as_marsaglia_and_tsang_make_them(shape):
    rng = np.random.default_rng(3)
    d = shape - 1 / 3
    x, number = rng.standard_normal(400_000), rng.random(400_000)
    v = (1 + x / np.sqrt(9 * d)) ** 3
    logarithm = np.log(v, out=np.full_like(v, -np.inf), where=v > 0)
    accepted = (v > 0) & (np.log(number) < 0.5 * x**2 + d * (1 - v + logarithm))
    assert 1 / accepted.mean() == pytest.approx(gamma_rounds(shape), rel=2e-3)
    # The test without logarithms leaves less than a tenth of them to the other.
    squeezed = number < 1 - 0.0331 * x**4
    assert 1 - squeezed.mean() < 0.0331 * 3
    assert not np.any(squeezed & (v > 0) & ~accepted)


def test_numbers_of_poisson_draws_as_knuth_makes_them():
    """Of a rate of 10, where TensorFlow changes the algorithm."""
    rng = np.random.default_rng(3)
    products = np.cumprod(rng.random((20_000, 60)), axis=1)
    assert np.mean((products > np.exp(-10)).sum(axis=1) + 1) == pytest.approx(11, rel=0.01)


@pytest.mark.parametrize(("trials", "probability"), [(100, 0.1), (20, 0.5)])
def test_numbers_of_binomial_draws_by_sums_of_geometric_numbers(trials, probability):
    rng = np.random.default_rng(3)
    steps = np.ceil(np.log(rng.random((20_000, 60))) / np.log1p(-probability))
    numbers = (np.cumsum(steps, axis=1) <= trials).sum(axis=1) + 1
    assert np.mean(numbers) == pytest.approx(11, rel=0.01)


def test_what_rounds_of_a_truncated_normal_draw_leave():
    # A normal number is beyond 2 with a probability of 0.0455, three of them with 9.4e-5; beyond
    # 1 with 0.317, of which nine are needed.
    assert truncated_normal_rounds(2) == 3
    assert truncated_normal_rounds(1) == 9
    rng = np.random.default_rng(3)
    left = np.abs(rng.standard_normal(100_000)) > 2
    assert left.mean() ** 3 < 1e-4 < left.mean() ** 2


@pytest.mark.parametrize(
    ("distribution", "dtype", "cycles"),
    [
        # 32 samples on a tile, 6 for a worker.
        # 1.0508 rounds of two numbers and 11 cycles, 0.1043 of 18, and 19 for a power: 40.8.
        ("gamma", "float32", 4 + 6 * (22 + 41 * 6)),
        ("gamma", "float16", 4 + 6 * (22 + 41 * 6)),
        # 3.5 for an exponential, 11 numbers of 4 and 4.5 cycles: 97.
        ("poisson", "int32", 4 + 6 * (22 + 97 * 6)),
        # 6.5 for a logarithm, 11 numbers of 4 and 17 cycles: 237.5.
        ("binomial", "int32", 4 + 6 * (22 + 238 * 6)),
        # Of two floats three rounds of 4 + 14 cycles, and two numbers and two cycles: 64. Six
        # workers have three such vectors at most.
        ("truncated_normal", "float32", 4 + 6 * (22 + 64 * 3)),
        # Of four, 3 * (4 + 22) + 10; two such vectors.
        ("truncated_normal", "float16", 4 + 6 * (22 + 88 * 2)),
    ],
)
def test_cycles(distribution, dtype, cycles):
    found = rejecting_draw(GC200, distribution=distribution, dtype=dtype, num_elements=32)
    assert found.cycles == cycles
    assert found.confidence is Confidence.GUESSED

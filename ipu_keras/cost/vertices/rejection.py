"""Costs random draws that reject numbers and draw again.

Neither a vertex nor an estimator of gamma, Poisson and binomial draws is published. Counted is
what TensorFlow's algorithms do, for the parameters that take longest.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ipu_keras.cost.tile.vertex_rates import element_named, rate_of
from ipu_keras.cost.tile.vertices import VertexCycles
from ipu_keras.machine.target import Confidence, Target

# Cycles of a vector from the tile's generator, as in `vertices.random_uniform`.
_NUMBER_CYCLES = 4


@dataclass(frozen=True)
class _WorkOfSample:
    """What is done for each sample, `times` on average: random numbers and XLA's operations."""

    times: float
    numbers: int
    operations: tuple[str, ...]


def gamma_rounds(shape: float) -> float:
    """Returns the average rounds of a gamma draw with a shape of 1 or more.

    Example:

    >>> round(gamma_rounds(1), 3), round(gamma_rounds(2), 3)
    (1.051, 1.019)
    """
    d = shape - 1 / 3
    accepted = math.exp(d) * math.sqrt(d) * math.gamma(shape) / d**shape
    return math.sqrt(2 * math.pi) / accepted


def truncated_normal_rounds(bound: float) -> int:
    """Returns the rounds of a normal draw that is truncated at so many standard deviations.

    Source: poplibs, poprand: the logarithm of what may be left over that of what one leaves.

    Example:

    >>> truncated_normal_rounds(2)
    3
    """
    return math.ceil(-4 / math.log10(math.erfc(bound / math.sqrt(2))))


_GREATEST_MEAN = 10
# Samples are drawn one after the other, as each has a number of rounds of its own; what the
# operations of a round take is that of vertices. Parameters are values of the run, so the
# average counts that is greatest of all parameters:
# - Gamma: Marsaglia and Tsang (2000). Of a shape a of 1 or more and d = a - 1/3, a round accepts
#   exp(d) sqrt(d) gamma(a) / (sqrt(2 pi) d^a): 0.952 of a = 1, and more of others. A second
#   test, with two logarithms, follows one round in ten: 0.0331 E[x^4], where E[x^4] is 3 of
#   normal numbers. Of less than 1, a + 1 is drawn and multiplied by a power of another number.
# - Poisson: of a rate below 10, Knuth's product of random numbers until it is below exp(-rate),
#   which are rate + 1 on average. Others take Hörmann's transformed rejection (1993), whose
#   rounds are 1.1239 + 1.1328 / (b - 3.4) with b = 0.931 + 2.53 sqrt(rate): 1.33 at most. With
#   their logarithms and that of a factorial, they take about as long as 11 numbers, and less at
#   higher rates.
# - Binomial: of a mean n p below 10, where p is the smaller of both probabilities, the sum of
#   geometric numbers until it is above n, which are n p + 1 on average, each with a logarithm.
#   Others take Hörmann's, of about (2.83 + 5.1 / b) / sqrt(2 pi) rounds with b = 1.15 + 2.53
#   sqrt(n p (1 - p)): 1.43 at most, which take less.
_SQUEEZE = ("multiply",) * 6 + ("add", "subtract", "compare", "compare")
_LOGARITHMS = ("log", "log", "multiply", "multiply", "subtract", "add", "add", "compare")
_POWER = ("log", "divide", "exponential", "multiply", "multiply")
_SAMPLES: Mapping[str, tuple[_WorkOfSample, ...]] = {
    "gamma": (
        _WorkOfSample(gamma_rounds(1), 2, _SQUEEZE),
        _WorkOfSample(gamma_rounds(1) * 0.0331 * 3, 0, _LOGARITHMS),
        _WorkOfSample(1, 1, _POWER),
    ),
    "poisson": (
        _WorkOfSample(1, 0, ("negate", "exponential")),
        _WorkOfSample(_GREATEST_MEAN + 1, 1, ("multiply", "compare", "add")),
    ),
    "binomial": (
        _WorkOfSample(1, 0, ("log-plus-one",)),
        _WorkOfSample(_GREATEST_MEAN + 1, 1, ("log", "divide", "ceil", "add", "compare", "add")),
    ),
}
# poprand's vertex draws vectors and takes a fixed number of rounds, so that what is left is
# beyond the bound of 2 with a probability of 1e-4 at most; a triangle is drawn for that.
_VECTORS: Mapping[str, tuple[_WorkOfSample, ...]] = {
    "truncated_normal": (
        _WorkOfSample(truncated_normal_rounds(2), 1, ("abs", "compare", "and", "or")),
        _WorkOfSample(1, 2, ("add", "multiply")),
    ),
}

REJECTING = frozenset({*_SAMPLES, *_VECTORS})


def rejecting_draw(
    target: Target, *, distribution: str, dtype: str, num_elements: int
) -> VertexCycles:
    """Cycles of drawing from a distribution by rejection, on average: a guess.

    Example:

    12 Poisson draws, two for a worker: 3.5 for the exponential and 11 times 4 for a number and 4.5
    to multiply, compare and count are 97 cycles.

    >>> from ipu_keras.machine.target import target_named
    >>> rejecting_draw(
    ...     target_named("gc200"), distribution="poisson", dtype="int32", num_elements=12
    ... ).cycles
    1300
    """
    vector, parts = 1, _SAMPLES.get(distribution)
    if parts is None:
        parts, vector = _VECTORS[distribution], element_named(dtype).natural_vector(target)
    else:
        # TensorFlow computes these draws in float32 or wider, whatever the dtype of samples.
        dtype = "float32"
    each = sum(
        part.times * (part.numbers * _NUMBER_CYCLES / vector + _cycles(part, dtype))
        for part in parts
    )
    vectors = math.ceil(num_elements / (target.num_workers * vector))
    cycles = 4 + target.num_workers * (22 + math.ceil(each * vector) * vectors)
    return VertexCycles(cycles, Confidence.GUESSED)


def _cycles(part: _WorkOfSample, dtype: str) -> float:
    rates = [rate_of(name, dtype)[1] for name in part.operations]
    return sum(rate.cycles / rate.vector for rate in rates)

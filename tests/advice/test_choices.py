"""Which choice is the best, on steps that are made up."""

import doctest
from dataclasses import dataclass

from ipu_keras.advice import choices
from ipu_keras.advice.choices import combinations, smallest_that_fits


@dataclass(frozen=True)
class Step:
    """What a search asks of a modelled step."""

    num_ipus: int
    samples_per_second: float | None
    fits: bool = True


def test_example_in_the_docstring():
    assert doctest.testmod(choices).failed == 0


def test_combinations():
    found = combinations({"a": [1, 2], "b": [3], "c": [4, 5]})
    assert [tuple(one.values()) for one in found] == [(1, 3, 4), (1, 3, 5), (2, 3, 4), (2, 3, 5)]
    assert {tuple(one) for one in found} == {("a", "b", "c")}
    assert combinations({}) == [{}]


def test_the_fewest_ipus_then_the_most_samples():
    steps = [Step(2, 900.0), Step(1, 100.0), Step(1, 300.0), Step(1, 300.0)]
    assert smallest_that_fits(steps) is steps[2]


def test_only_what_fits_counts():
    steps = [Step(1, 900.0, fits=False), Step(4, 100.0)]
    assert smallest_that_fits(steps) is steps[1]
    assert smallest_that_fits(steps[:1]) is None
    assert smallest_that_fits([]) is None


def test_a_step_that_takes_no_time_is_the_fastest():
    steps = [Step(1, 1e9), Step(1, None)]
    assert smallest_that_fits(steps) is steps[1]

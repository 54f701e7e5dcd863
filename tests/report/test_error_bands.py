"""What reports say of the model's error is what the comparison with hardware gives."""

from statistics import mean

import fidelity
import pytest

from ipu_keras.report.error_bands import error_bands


@pytest.fixture(scope="module")
def comparisons():
    return fidelity.by_category()


def test_the_bands_are_up_to_date(comparisons):
    found = {category: fidelity.band(members) for category, members in comparisons.items()}
    assert error_bands() == found, "run `python benchmarks/fidelity.py --write`"


@pytest.mark.parametrize("category", sorted(set(fidelity.GOALS) - {"on-chip exchange"}))
def test_the_median_error_meets_its_goal(comparisons, category):
    assert fidelity.band(comparisons[category])["median_error"] <= fidelity.GOALS[category]


def test_on_chip_exchange_of_the_calibration_points(comparisons):
    """The further points (M...) are of few tiles; all together are at 9 %."""
    points = [one for one in comparisons["on-chip exchange"] if one.id.startswith("V")]
    assert len(points) >= 8
    assert fidelity.band(points)["median_error"] <= fidelity.GOALS["on-chip exchange"]


def test_the_matrix_unit(comparisons):
    errors = [abs(one.error) for one in comparisons["AMP 1x1"]]
    assert len(errors) == 128
    assert mean(errors) <= 0.01
    assert max(errors) <= 0.05


def ranks(numbers):
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    places = [0] * len(numbers)
    for place, index in enumerate(order):
        places[index] = place
    return places


def test_the_order_of_convolutions(comparisons):
    """Spearman's correlation of measured and modelled throughput."""
    points = comparisons["convolutions"]
    measured = ranks([one.measured for one in points])
    modelled = ranks([one.modelled for one in points])
    squares = sum((a - b) ** 2 for a, b in zip(measured, modelled, strict=True))
    n = len(points)
    assert 1 - 6 * squares / (n * (n * n - 1)) >= 0.9

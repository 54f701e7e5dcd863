import doctest

import pytest

from ipu_keras.machine.system import PCI_ADDRESSES
from ipu_keras.machine.target import DEFAULT_TARGET, TARGETS
from ipu_keras_tools import budget
from ipu_keras_tools.budget import Budget, budget_of


def test_examples():
    assert doctest.testmod(budget).failed == 0


def test_the_machine_is_that_of_the_package():
    assert set(budget.TARGETS) == set(TARGETS)
    assert len(PCI_ADDRESSES) == budget.MOST_IPUS
    assert Budget().target == DEFAULT_TARGET


def test_it_is_written_as_its_marker():
    given = {"target": "bow", "num_ipus": 4, "max_cycles": 10, "max_tile_memory": 0.5}
    assert eval(f"dict{str(budget_of((), given)).removeprefix('ipu_fits')}") == given
    assert str(Budget()) == "ipu_fits()"


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"num_ipus": 0}, ValueError, "positive integer, at most 16. Received: num_ipus=0"),
        ({"num_ipus": True}, TypeError, "positive integer, at most 16. Received: True of type"),
        ({"max_cycles": 0}, ValueError, "`max_cycles` must be a positive integer. Received: max_"),
        ({"max_tile_memory": 0}, ValueError, "above 0 and at most 1. Received: max_tile_memory=0"),
        ({"max_tile_memory": "1"}, TypeError, "above 0 and at most 1. Received: '1' of type str"),
        ({"max_tile_memory": True}, TypeError, "at most 1. Received: True of type bool"),
        (
            {"target": ["bow"]},
            ValueError,
            r"one of gc2, gc200, bow, c600. Received: target=\['bow'\]",
        ),
        ({"cycles": 1}, TypeError, "no argument `cycles`. Did you mean `max_cycles`"),
    ],
)
def test_what_it_refuses(given, error, message):
    with pytest.raises(error, match=message):
        budget_of((), given)

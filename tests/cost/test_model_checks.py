"""What files are asked that graphs and models are read from."""

import dataclasses

import pytest
from hlo_graphs import loop

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.model_checks import check_model
from ipu_keras.cost.passes import model_graph
from ipu_keras.ir import Graph
from ipu_keras.machine.target import TARGETS

TARGET, OPTIONS = TARGETS["gc200"], CostOptions()


@pytest.fixture(scope="module")
def model():
    made = model_graph("loop", loop(4), TARGET, OPTIONS)
    return dataclasses.replace(made, name="", graph=Graph(made.graph.name, ()))


def test_a_model_hangs_together(model):
    check_model(model, TARGET, OPTIONS)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: {"costs": model.costs[1:]},
        lambda model: {
            "costs": (dataclasses.replace(model.costs[0], compute_cycles=-1), *model.costs[1:])
        },
        lambda model: {"host_cycles": -1},
        lambda model: {"target": TARGETS["gc2"]},
        lambda model: {"program": dataclasses.replace(model.program, values={})},
        lambda model: {
            "memory": dataclasses.replace(model.memory, peak_by_tile=model.memory.peak_by_tile[1:])
        },
        lambda model: {"memory": dataclasses.replace(model.memory, peak_position=10**6)},
    ],
)
def test_a_model_that_does_not(model, change):
    with pytest.raises(ValueError, match=r"^(of a model|numbers of)"):
        check_model(dataclasses.replace(model, **change(model)), TARGET, OPTIONS)

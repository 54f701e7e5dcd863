"""What collectives and copies between IPUs cost."""

import math

import pytest
from graph_costs import GC200, costs
from hlo_graphs import argument, op

from ipu_keras.cost.tile.exchange import (
    Members,
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    reduce_scatter_seconds,
)


def test_collectives_of_one_replica_cost_nothing():
    assert costs(argument("x", 64), op("y", "all-reduce", (64,), "x"))["y"].cycles == 0


@pytest.mark.parametrize(
    ("kind", "shape", "seconds"),
    [
        ("all-reduce", (1000,), all_reduce_seconds),
        ("reduce-scatter", (250,), reduce_scatter_seconds),
        ("all-gather", (4000,), all_gather_seconds),
        ("all-to-all", (1000,), all_to_all_seconds),
    ],
)
def test_collectives_of_replicas_use_the_links(kind, shape, seconds):
    found = costs(argument("x", 1000), op("y", kind, shape, "x", num_replicas=4))["y"]
    num_bytes = 4 * max(1000, *shape)
    assert found.cycles == math.ceil(seconds(GC200, num_bytes, Members(4, 4)) * 1.33e9)
    assert found.detail == "4 replicas"

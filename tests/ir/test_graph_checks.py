"""What files are asked that graphs are read from."""

import dataclasses

import pytest
from hlo_graphs import graph, op

from ipu_keras.ir.graph_checks import check_graph

X = op("x", "iota", (3,), dimensions=(0,))
Y = op("y", "negate", (3,), "x")


def test_a_graph_hangs_together():
    check_graph(graph(X, Y))


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ((Y, X), "'y' needs 'x', which is not there before it"),
        ((X, X), "two operations of the name 'x'"),
        ((dataclasses.replace(X, attributes={}),), "'x' of kind 'iota' has no attribute 'dimen"),
        ((dataclasses.replace(X, attributes={"dimensions": None}),), "'dimensions' of None"),
        ((dataclasses.replace(X, body=("f",)),), "'x' needs 'f'"),
    ],
)
def test_a_graph_that_does_not(ops, message):
    broken = dataclasses.replace(graph(X, Y), ops=ops, results=(ops[0].name,))
    with pytest.raises(ValueError, match=message):
        check_graph(broken)


def test_what_has_to_run_before_is_there():
    check_graph(graph(X, dataclasses.replace(Y, inputs=(), after=("x",))))
    later = dataclasses.replace(X, after=("y",))
    with pytest.raises(ValueError, match="'x' needs 'y', which is not there before it"):
        check_graph(graph(later, Y))

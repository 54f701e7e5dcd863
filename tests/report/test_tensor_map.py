"""Which tensors lie on which tiles, of programs that are built by hand."""

import doctest
import sys

from hlo_graphs import argument, graph, op, variable

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.ir import Graph, Op, TensorSpec
from ipu_keras.machine.target import TARGETS
from ipu_keras.report.tensor_map import tensor_map

# Four tiles, and 128 bytes or more of a tensor on each.
SMALL = TARGETS["gc200"].with_numbers(num_tiles=4)


def tensors(graph, **options):
    model = model_graph("small", graph, SMALL, CostOptions(**options))
    ((name, found),) = tensor_map(model)["mappings"].items()
    assert name == "small"
    return {(row[0], row[1]): row[2:] for row in found}


def test_example_in_the_docstring():
    assert doctest.testmod(sys.modules[tensor_map.__module__]).failed == 0


def test_tensors_lie_one_behind_the_other():
    # 65 floats need 260 bytes, which is three tiles; 33 need 132, which is two: of the
    # four tiles, 3 and then again 0.
    step = graph(
        argument("x", 65),
        argument("z", 33),
        op("y", "tanh", (65,), "x"),
        op("n", "tanh", (33,), "z"),
    )
    found = tensors(step)
    assert found["x", 0] == [[65], "float32", False, False, 65, [[0, 22], [1, 22], [2, 21]]]
    assert found["z", 0] == [[33], "float32", False, False, 33, [[3, 17], [0, 16]]]


def test_new_values_of_variables_lie_where_the_variable_does():
    step = graph(
        argument("x", 40),
        variable("w", 40, result=0),
        op("new", "add", (40,), "w", "x"),
        results=("new",),
    )
    found = tensors(step)
    assert found["new", 0][:4] == [[40], "float32", False, True]
    assert found["new", 0][5] == found["w", 0][5] == [[2, 20], [3, 20]]
    assert not found["w", 0][3]


def test_a_result_in_the_place_of_its_operand():
    found = tensors(graph(argument("x", 40), op("y", "tanh", (40,), "x")))
    assert [found[name, 0][3] for name in "xy"] == [False, True]
    assert found["x", 0][5] == found["y", 0][5]


def test_tiles_of_the_second_ipu_come_after_those_of_the_first():
    step = graph(
        argument("x", 32),
        variable("v", 32),
        op("a", "add", (32,), "x", "v", layer="first"),
        op("b", "sort", (32,), "a", layer="second", dimensions=(0,)),
        variable("w", 32),
        op("c", "add", (32,), "b", "w", layer="second"),
    )
    found = tensors(step, num_ipus=2)
    tiles = {name: {tile for tile, _ in row[5]} for (name, _), row in found.items()}
    assert all(tiles[name] <= {0, 1, 2, 3} for name in ("x", "v", "a"))
    assert all(tiles[name] <= {4, 5, 6, 7} for name in ("a@ipu1", "b", "w", "c"))


def test_constants_and_several_results():
    constant = op("c", "constant", (), value=2.0)
    split = Op("s", "sort", (TensorSpec((2,), "int32"), TensorSpec((2,), "int32")), inputs=("x",))
    step = graph(
        constant,
        op("x", "parameter", (2,), dtype="int32", role="argument"),
        split,
        results=("s:0", "s:1", "c"),
    )
    found = tensors(step)
    assert found["float32(2.0)", 0][:5] == [[], "float32", True, False, 1]
    assert found["s", 0][1] == found["s", 1][1] == "int32"
    assert {name for name, _ in found} == {"float32(2.0)", "x", "s"}


def test_a_program_without_tensors():
    assert tensors(Graph("step", (), form="hlo")) == {}

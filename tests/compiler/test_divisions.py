"""Divisions by constants, in graphs built by hand and as TensorFlow traces them."""

import doctest

import pytest
import tensorflow as tf
from hlo_graphs import argument, graph, inner_parameter, op, variable

from ipu_keras import profile
from ipu_keras.compiler import divisions
from ipu_keras.compiler.divisions import with_products_for_divisions

TILES, LAUNCH = 1472, 81


def divided(*after, by=8.0, dtype="float32", results=("y",)):
    """x / 8, and what comes after."""
    return graph(
        op("x", "parameter", (4,), dtype=dtype, role="argument"),
        op("eight", "constant", (), dtype=dtype, value=by),
        op("eights", "broadcast", (4,), "eight", dtype=dtype, dimensions=()),
        op("y", "divide", (4,), "x", "eights", dtype=dtype, layer="mean", backward=True),
        *after,
        results=results,
    )


def listed(written):
    return [(one.name, one.kind, one.inputs) for one in written.ops]


def test_example_in_the_docstring():
    assert doctest.testmod(divisions).failed == 0


@pytest.mark.parametrize("by", [8.0, 8])
def test_a_division_becomes_a_product(by):
    written = with_products_for_divisions(divided(by=by))
    assert listed(written) == [
        ("x", "parameter", ()),
        ("y/reciprocal", "constant", ()),
        ("y/reciprocals", "broadcast", ("y/reciprocal",)),
        ("y", "multiply", ("x", "y/reciprocals")),
    ]
    assert written.ops[1].attributes == {"value": 0.125}
    assert written.ops[1].outputs[0].shape == ()
    assert {(one.layer, one.backward) for one in written.ops[1:]} == {("mean", True)}
    assert written.results == ("y",)


@pytest.mark.parametrize("other", [{"by": 0.0}, {"by": 8, "dtype": "int32"}])
def test_divisions_by_zero_and_of_integers_stay(other):
    assert with_products_for_divisions(divided(**other)) == divided(**other)


def test_divisions_by_what_is_computed_and_of_constants_stay():
    found = graph(
        argument("x", 4),
        variable("n", 4),
        op("y", "divide", (4,), "x", "n"),
        op("one", "constant", (), value=1.0),
        op("ones", "broadcast", (4,), "one", dimensions=()),
        op("z", "divide", (4,), "ones", "y"),
    )
    assert with_products_for_divisions(found) == found


def test_a_divisor_that_others_use_stays():
    more = divided(op("z", "add", (4,), "y", "eights"), results=("z",))
    kinds = [one.kind for one in with_products_for_divisions(more).ops]
    both = ["constant", "broadcast"] * 2
    assert kinds == ["parameter", *both, "multiply", "add"]


def test_a_product_of_constants_is_a_constant():
    # Of two axes, as TensorFlow counts what a mean is of: 2 * 4 as integers, then as float32.
    ops = [
        argument("x", 4),
        op("two", "constant", (), dtype="int32", value=2),
        op("four", "constant", (), dtype="int32", value=4),
        op("product", "multiply", (), "two", "four", dtype="int32"),
        op("count", "convert", (), "product"),
        op("counts", "broadcast", (4,), "count", dimensions=()),
        op("y", "divide", (4,), "x", "counts"),
    ]
    written = with_products_for_divisions(graph(*ops))
    kinds = [one.kind for one in written.ops]
    assert kinds == ["parameter", "constant", "broadcast", "multiply"]
    assert written.ops[1].attributes == {"value": 0.125}
    # With a size that only the step knows, it is none.
    ops[1] = op("two", "parameter", (), dtype="int32", role="argument")
    assert with_products_for_divisions(graph(*ops)) == graph(*ops)


def test_those_of_called_graphs_too():
    inner = graph(inner_parameter("x", 4), *divided().ops[1:])
    call = op("call", "call", (4,), "a", body=("inner",))
    outer = graph(argument("a", 4), call, functions={"inner": inner})
    written = with_products_for_divisions(outer)
    assert [one.kind for one in written.functions["inner"].ops][-1] == "multiply"


def test_a_division_as_tensorflow_traces_it():
    # 32 floats on a tile are 6 for a worker, 3 vectors at 1 cycle and 2 for memory.
    model = profile(tf.function(lambda x: x / 3), tf.TensorSpec((TILES, 32))).model
    (found,) = model.costs
    assert found.compute_cycles == 11 + 6 * (29 + 3 * 3) + LAUNCH
    assert found.vertex == "map multiply float32"

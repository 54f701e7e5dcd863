"""Powers and divisions by constants, in graphs built by hand and as TensorFlow traces them."""

import doctest

import pytest
import tensorflow as tf
from hlo_graphs import argument, graph, inner_parameter, op, variable

from ipu_keras import profile
from ipu_keras.cost.rewrites import strength_reduction
from ipu_keras.cost.rewrites.strength_reduction import (
    with_products_for_divisions,
    with_products_for_powers,
)

TILES, LAUNCH = 1472, 81


def raised(exponent, *after, results=("raised",)):
    """x ** exponent, and what comes after."""
    return graph(
        argument("x", 4),
        op("exponent", "constant", (), value=exponent),
        op("exponents", "broadcast", (4,), "exponent", dimensions=()),
        op("raised", "power", (4,), "x", "exponents", layer="loss", backward=True),
        *after,
        results=results,
    )


def listed(written):
    return [(one.name, one.kind, one.inputs) for one in written.ops]


def test_examples_in_docstrings():
    assert doctest.testmod(strength_reduction).failed == 0


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [
        (2.0, [("raised", "multiply", ("x", "x"))]),
        (2, [("raised", "multiply", ("x", "x"))]),
        (
            3.0,
            [
                ("raised/square", "multiply", ("x", "x")),
                ("raised", "multiply", ("raised/square", "x")),
            ],
        ),
        (
            -1.0,
            [
                ("raised/one", "constant", ()),
                ("raised/ones", "broadcast", ("raised/one",)),
                ("raised", "divide", ("raised/ones", "x")),
            ],
        ),
        (1.0, [("raised", "copy", ("x",))]),
    ],
)
def test_exponents(exponent, expected):
    written = with_products_for_powers(raised(exponent))
    assert listed(written) == [("x", "parameter", ()), *expected]
    assert written.results == ("raised",)
    assert {(one.layer, one.backward) for one in written.ops[1:]} == {("loss", True)}
    assert written.ops[-1].outputs == raised(exponent).ops[-1].outputs


def test_what_takes_a_first_power_takes_the_number():
    written = with_products_for_powers(
        raised(1.0, op("negative", "negate", (4,), "raised"), results=("negative",))
    )
    assert listed(written) == [("x", "parameter", ()), ("negative", "negate", ("x",))]


@pytest.mark.parametrize("exponent", [0.0, 0.5, -2.0, 4.0])
def test_other_exponents_stay(exponent):
    whole = raised(exponent)
    assert with_products_for_powers(whole) == whole


def test_exponents_that_are_no_constants_stay():
    several = graph(
        argument("x", 2),
        op("exponents", "constant", (2,), value=(2.0, 2.0)),
        op("raised", "power", (2,), "x", "exponents"),
    )
    given = graph(argument("x", 2), argument("y", 2), op("raised", "power", (2,), "x", "y"))
    assert with_products_for_powers(several) == several
    assert with_products_for_powers(given) == given


def test_an_exponent_that_others_use_stays():
    written = with_products_for_powers(
        raised(2.0, op("sum", "add", (4,), "raised", "exponents"), results=("sum",))
    )
    assert [one.name for one in written.ops] == ["x", "exponent", "exponents", "raised", "sum"]


def test_bodies_of_loops_change_too():
    body = graph(
        inner_parameter("x"),
        op("two", "constant", (), value=2.0),
        op("square", "power", (), "x", "two"),
    )
    outer = graph(
        argument("x"), op("loop", "while", (), "x", body=("body",)), functions={"body": body}
    )
    (changed,) = with_products_for_powers(outer).functions.values()
    assert listed(changed) == [("x", "parameter", ()), ("square", "multiply", ("x", "x"))]


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32])
def test_a_squared_error_costs_what_its_product_costs(dtype):
    def gradient_of(loss):
        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.reduce_sum(loss(x - 1))
            return total, tape.gradient(total, x)

        return profile(step, tf.TensorSpec((1000, 1000), dtype))

    def product(x):
        return x * x

    by_power, by_square, by_product = map(gradient_of, (lambda x: x**2, tf.square, product))
    assert by_power.compute_cycles <= by_product.compute_cycles
    assert by_power.compute_cycles <= 1.1 * by_square.compute_cycles
    kinds = {one.ops[-1].kind for one in by_power.model.program.compute_sets}
    assert "power" not in kinds


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

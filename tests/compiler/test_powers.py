"""Powers with constant exponents, in graphs built by hand and as TensorFlow traces them."""

import doctest

import pytest
import tensorflow as tf
from hlo_graphs import argument, graph, inner_parameter, op

from ipu_keras import profile
from ipu_keras.compiler import powers
from ipu_keras.compiler.powers import with_products_for_powers


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


def test_example_in_the_docstring():
    assert doctest.testmod(powers).failed == 0


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


def test_a_constant_that_others_use_stays():
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

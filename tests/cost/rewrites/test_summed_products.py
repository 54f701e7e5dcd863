"""Sums of products, in graphs built by hand and as TensorFlow traces them."""

import doctest

import pytest
import tensorflow as tf
from hlo_graphs import argument, graph, inner_parameter, op

from ipu_keras import profile
from ipu_keras.cost.rewrites import summed_products
from ipu_keras.cost.rewrites.summed_products import with_summed_products


def products(*after, results=("dw",), dtype="float32"):
    """Gradients of a weight, (2, 3), of each of 6 x 4 samples with 5 rows, and what comes after."""
    return graph(
        op("x", "parameter", (6, 5, 4, 2), dtype=dtype, role="argument"),
        op("dy", "parameter", (5, 6, 3, 4), dtype=dtype, role="argument"),
        op("zero", "constant", (), dtype=dtype, value=0.0),
        op(
            "dot",
            "dot",
            (6, 4, 2, 3),
            "x",
            "dy",
            dtype=dtype,
            layer="head",
            backward=True,
            lhs_batch_dimensions=(0, 2),
            rhs_batch_dimensions=(1, 3),
            lhs_contracting_dimensions=(1,),
            rhs_contracting_dimensions=(0,),
        ),
        *after,
        results=results,
    )


def total(name, shape, source, *dimensions, dtype="float32", zero="zero", operation="add"):
    return op(
        name,
        "reduce",
        shape,
        source,
        zero,
        dtype=dtype,
        dimensions=dimensions,
        operation=operation,
    )


def dimensions(dot):
    """Its batch on the left and right, then what it contracts there."""
    return [
        dot.attributes[f"{side}_{kind}_dimensions"]
        for kind in ("batch", "contracting")
        for side in ("lhs", "rhs")
    ]


def kinds(written):
    return [one.kind for one in written.ops if one.kind not in ("parameter", "constant")]


def test_example_in_the_docstring():
    assert doctest.testmod(summed_products).failed == 0


@pytest.mark.parametrize(
    ("summed", "shape", "expected"),
    [
        ((0, 1), (2, 3), [(), (), (0, 2, 1), (1, 3, 0)]),
        ((0,), (4, 2, 3), [(2,), (3,), (0, 1), (1, 0)]),
        ((1,), (6, 2, 3), [(0,), (1,), (2, 1), (3, 0)]),
    ],
)
def test_a_sum_over_the_batch_belongs_to_the_product(summed, shape, expected):
    written = with_summed_products(products(total("dw", shape, "dot", *summed)))
    *parameters, dot = written.ops
    assert [one.name for one in parameters] == ["x", "dy"]  # the zero is gone too
    assert (dot.kind, dot.outputs[0].shape, dimensions(dot)) == ("dot", shape, expected)
    assert (dot.layer, dot.backward) == ("head", True)
    assert written.results == ("dot",)


@pytest.mark.parametrize(
    "after",
    [
        [total("dw", (6, 4, 3), "dot", 2)],  # rows of the left operand
        [total("dw", (4, 3), "dot", 0, 2)],
        [total("dw", (2, 3), "dot", 0, 1, operation="maximum")],
        [op("one", "constant", (), value=1.0), total("dw", (2, 3), "dot", 0, 1, zero="one")],
        [op("twice", "add", (6, 4, 2, 3), "dot", "dot"), total("dw", (2, 3), "twice", 0, 1)],
        # Of each three, two of one sample and one of the next.
        [op("flat", "reshape", (8, 3, 6), "dot"), total("dw", (8, 6), "flat", 1)],
        # Products in integers, added up in another type.
        [op("int", "convert", (6, 4, 2, 3), "dot"), total("dw", (2, 3), "int", 0, 1)],
    ],
)
def test_other_sums_stay(after):
    found = products(*after, dtype="float32" if after[0].kind != "convert" else "int32")
    assert with_summed_products(found).ops == found.ops


def test_what_others_read_stays():
    both = products(total("dw", (2, 3), "dot", 0, 1), results=("dw", "dot"))
    assert with_summed_products(both) == both
    waiting = op("later", "negate", (2, 3), "dw")
    waiting = products(total("dw", (2, 3), "dot", 0, 1), waiting, results=("later",))
    assert with_summed_products(waiting).ops[-1].inputs == ("dot",)


def test_views_between_are_views_of_the_sum():
    """What is transposed, and whose batch is one axis, is the same of the sum."""
    written = with_summed_products(
        products(
            op("turned", "transpose", (3, 6, 4, 2), "dot", dimensions=(3, 0, 1, 2)),
            op("flat", "reshape", (3, 24, 1, 2), "turned"),
            total("dw", (3, 2), "flat", 1, 2),
        )
    )
    dot, turned, flat = written.ops[-3:]
    assert dimensions(dot) == [(), (), (0, 2, 1), (1, 3, 0)]
    assert (turned.outputs[0].shape, turned.attributes["dimensions"]) == ((3, 2), (1, 0))
    assert (flat.outputs[0].shape, flat.inputs, written.results) == ((3, 2), ("turned",), ("flat",))


def test_one_sum_after_the_other():
    written = with_summed_products(
        products(total("once", (4, 2, 3), "dot", 0), total("dw", (2, 3), "once", 0))
    )
    assert kinds(written) == ["dot"]
    assert dimensions(written.ops[-1]) == [(), (), (2, 0, 1), (3, 1, 0)]


def halves(*after, results):
    """Halves, which TensorFlow adds up in float32."""
    return products(
        op("float", "convert", (6, 4, 2, 3), "dot"),
        op("start", "convert", (), "zero"),
        total("sum", (2, 3), "float", 0, 1, zero="start"),
        *after,
        results=results,
        dtype="float16",
    )


def test_sums_of_halves_are_halves_of_products():
    half = op("half", "convert", (2, 3), "sum", dtype="float16")
    written = with_summed_products(halves(half, results=("half",)))
    assert (kinds(written), written.results) == (["dot"], ("dot",))
    assert written.ops[-1].outputs[0].dtype == "float16"


def test_sums_that_stay_in_float32_keep_their_digits():
    found = halves(results=("sum",))
    assert with_summed_products(found).ops == found.ops


def test_those_of_called_graphs_too():
    inner = products(total("dw", (2, 3), "dot", 0, 1))
    x, dy = inner_parameter("x", 6, 5, 4, 2), inner_parameter("dy", 5, 6, 3, 4, first_leaf=1)
    inner = graph(x, dy, *inner.ops[2:], results=("dw",))
    call = op("call", "call", (2, 3), "a", "b", body=("inner",))
    outer = graph(
        argument("a", 6, 5, 4, 2), argument("b", 5, 6, 3, 4), call, functions={"inner": inner}
    )
    assert kinds(with_summed_products(outer).functions["inner"]) == ["dot"]


def flat(x, w):
    return tf.reshape(tf.reshape(x, (-1, x.shape[-1])) @ w, (*x.shape[:-1], w.shape[-1]))


def in_two_axes(x, w):
    return tf.reshape(tf.reshape(x, (2, 4, *x.shape[1:])) @ w, (*x.shape[:-1], w.shape[-1]))


def with_axis_of_one(x, w):
    return x @ w[None]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("head", [tf.matmul, in_two_axes, with_axis_of_one])
def test_a_head_costs_the_same_however_its_batch_is_written(head, dtype):
    """(8, 20, 256) with (256, 2000): the product and both gradients, in cycles and bytes."""
    w = tf.Variable(tf.zeros((256, 2000), dtype))
    costs = []
    for forward in (flat, head):

        @tf.function
        def step(x, dy, forward=forward):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = forward(x, w)
            return y, *tape.gradient(y, [w, x], output_gradients=dy)

        x, dy = (tf.TensorSpec((8, 20, n), dtype) for n in (256, 2000))
        report = profile(step, x, dy, target="gc200")
        costs.append((report.compute_cycles, report.memory_by_tile.sum()))
    (flat_cycles, flat_bytes), (cycles, num_bytes) = costs
    assert cycles == pytest.approx(flat_cycles, rel=0.05)
    assert num_bytes == pytest.approx(flat_bytes, rel=0.05)

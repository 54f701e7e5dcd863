"""What matrix products cost, as planned."""

import math

import pytest
from graph_costs import GC200, LAUNCH, costs
from hlo_graphs import argument, op, variable

from ipu_keras.cost.products.convolution_planner import plan
from ipu_keras.cost.products.convolutions import matmul
from ipu_keras.cost.tile import vertices
from ipu_keras.machine.target import Confidence


def test_a_product_is_planned_in_the_shapes_of_its_operands():
    found = costs(
        argument("x", 4, 8, 784),
        variable("w", 784, 256),
        op("flat", "reshape", (32, 784), "x"),
        op(
            "y",
            "dot",
            (32, 256),
            "flat",
            "w",
            lhs_contracting_dimensions=(1,),
            rhs_contracting_dimensions=(0,),
            lhs_batch_dimensions=(),
            rhs_batch_dimensions=(),
        ),
    )["y"]
    best = plan(GC200, matmul(1, 32, 784, 256, "float32"), memory_proportion=0.6)
    assert found.cycles == best.cycles
    assert found.temporary_bytes == best.temporary_bytes
    assert found.detail == best.method


def product_of(dtype, depth=64):
    return costs(
        op("x", "parameter", (64, depth), role="argument", number=0, first_leaf=0, dtype=dtype),
        op("w", "parameter", (depth, 64), role="argument", number=1, first_leaf=1, dtype=dtype),
        op(
            "y",
            "dot",
            (64, 64),
            "x",
            "w",
            dtype=dtype,
            lhs_contracting_dimensions=(1,),
            rhs_contracting_dimensions=(0,),
            lhs_batch_dimensions=(),
            rhs_batch_dimensions=(),
        ),
    )["y"]


@pytest.mark.parametrize(
    ("dtype", "as_if"), [("bfloat16", "float16"), ("int32", "float32"), ("complex64", "float32")]
)
def test_products_of_types_that_ipus_do_not_multiply_are_guessed(dtype, as_if):
    assert product_of(as_if).confidence is not Confidence.GUESSED
    assert product_of(dtype).confidence is Confidence.GUESSED
    assert product_of(dtype).cycles == product_of(as_if).cycles


def test_a_product_of_nothing_is_zeros():
    found = product_of("float32", depth=0)
    assert found.vertex == "fill float32"
    zeros = vertices.fill(GC200, dtype="float32", num_elements=math.ceil(64 * 64 / found.tiles))
    assert found.compute_cycles == zeros.cycles + LAUNCH

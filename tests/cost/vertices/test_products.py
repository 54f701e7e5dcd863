"""What matrix products cost, as planned."""

import math
from dataclasses import replace

import pytest
from graph_costs import GC200, LAUNCH, TILES, costs, program_costs
from hlo_graphs import argument, graph, inner_parameter, op, poplar_call, product, spec, variable

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.poplar_bodies import with_bodies_in_order
from ipu_keras.cost.flat.views import with_views
from ipu_keras.cost.products.convolution_planner import plan
from ipu_keras.cost.products.convolutions import Convolution, matmul
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.vertices.products import convolution_of, product_of
from ipu_keras.ir import work_of
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


def test_only_what_is_allocated_for_products_stays_where_it_lies():
    found = costs(
        argument("x", 8, 256),
        variable("w", 256, 256),
        product("of variable", (8, 256), "x", "w"),
        op("narrow", "negate", (256, 256), "w"),
        product("of what lies with it", (8, 256), "x", "narrow"),
        product("made", (256, 256), "w", "w"),
        product("of what was made", (8, 256), "x", "made"),
    )
    # Of the right matrix, a tile alone multiplies 8 x 6 numbers.
    best = plan(GC200, matmul(1, 8, 256, 256, "float32"), memory_proportion=0.6)
    assert (best.temporary_bytes, best.staying_bytes) == (1088, (8 * 6 * 4, 0))
    products = ("of variable", "of what lies with it", "of what was made")
    assert [found[name].temporary_bytes for name in products] == [1088 - 192, 1088 - 192, 1088]


def test_what_reads_several_values_in_one_view_has_its_variable_where_it_lies():
    program = with_views(
        flatten(
            graph(
                argument("x", 8, 128),
                variable("w", 256, 256),
                op("a", "reverse", (8, 128), "x", dimensions=(0,)),
                op("b", "reverse", (8, 128), "x", dimensions=(1,)),
                op("both", "concatenate", (8, 256), "a", "b", dimensions=(1,)),
                product("y", (8, 256), "both", "w"),
                results=("y",),
            )
        )
    )
    assert program.compute_sets[-1].reads == ("a", "b", "w")
    assert program_costs(program)["y"].temporary_bytes == 1088 - 192


def square_product(dtype, depth=64):
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
    assert square_product(as_if).confidence is not Confidence.GUESSED
    assert square_product(dtype).confidence is Confidence.GUESSED
    assert square_product(dtype).cycles == square_product(as_if).cycles


def test_a_product_is_added_to_what_is_in_its_place():
    """As popnn adds up the gradients of steps, on the tiles that make them."""
    size = 6 * TILES
    program = flatten(
        graph(
            argument("x", size, 4),
            argument("dy", size, 1),
            op("sum", "dot", (4, 1), "x", "dy", **_contracted(0, 0)),
        )
    )
    (product,) = program.compute_sets
    before = replace(product.writes[0], name="before")
    added = replace(
        program,
        compute_sets=(replace(product, reads=(*product.reads, "before")),),
        values={**program.values, "before": before},
        in_place={"sum": "before"},
    )
    alone, found = program_costs(program)["sum"], program_costs(added)["sum"]
    # A tile has one number, which one worker adds: 11 + 6 (29 + 3).
    assert found.compute_cycles - alone.compute_cycles == 11 + 6 * (29 + 3) + LAUNCH
    assert found.exchange_cycles == alone.exchange_cycles


def _contracted(left, right):
    return {
        "lhs_batch_dimensions": (),
        "rhs_batch_dimensions": (),
        "lhs_contracting_dimensions": (left,),
        "rhs_contracting_dimensions": (right,),
    }


def test_a_product_of_nothing_is_zeros():
    found = square_product("float32", depth=0)
    assert found.vertex == "fill float32"
    zeros = vertices.fill(GC200, dtype="float32", num_elements=math.ceil(64 * 64 / found.tiles))
    assert found.compute_cycles == zeros.cycles + LAUNCH


def dot(shape, contracting, batch=((), ())):
    return op(
        "dot",
        "dot",
        shape,
        lhs_contracting_dimensions=contracting[0],
        rhs_contracting_dimensions=contracting[1],
        lhs_batch_dimensions=batch[0],
        rhs_batch_dimensions=batch[1],
    )


PRODUCTS = [
    # (32, 784) by (784, 256): columns are the field.
    (
        dot((32, 256), ((1,), (0,))),
        [spec(32, 784), spec(784, 256)],
        Convolution(1, (256,), (1,), 784, 32, dtype="float32"),
    ),
    # The gradient of the weights: (784, 256) = (32, 784)' (32, 256).
    (
        dot((784, 256), ((0,), (0,))),
        [spec(32, 784, dtype="float16"), spec(32, 256, dtype="float16")],
        Convolution(1, (256,), (1,), 32, 784, dtype="float16"),
    ),
    # 8 heads: (8, 64, 32) by (8, 32, 64), each head a group.
    (
        dot((8, 64, 64), ((2,), (1,)), ((0,), (0,))),
        [spec(8, 64, 32), spec(8, 32, 64)],
        Convolution(1, (64,), (1,), 8 * 32, 8 * 64, 8, dtype="float32"),
    ),
    # A scalar product.
    (
        dot((), ((0,), (0,))),
        [spec(100, dtype="bfloat16"), spec(100, dtype="bfloat16")],
        Convolution(1, (1,), (1,), 100, 1, dtype="float16"),
    ),
]


@pytest.mark.parametrize(("product", "inputs", "expected"), PRODUCTS)
def test_products(product, inputs, expected):
    found = product_of(product, inputs)
    assert found == expected
    assert found.flops == work_of(product, inputs).flops


def convolution(output, window, **attributes):
    """Of two spatial dimensions, with channels last, as TensorFlow has them."""
    plain = {
        "window_size": window,
        "window_stride": (1, 1),
        "base_dilation": (1, 1),
        "window_dilation": (1, 1),
        "input_feature_dimension": 3,
        "input_spatial_dimensions": (1, 2),
        "kernel_output_feature_dimension": 3,
        "output_batch_dimension": 0,
        "output_feature_dimension": 3,
        "output_spatial_dimensions": (1, 2),
        "feature_group_count": 1,
        "batch_group_count": 1,
    }
    return op("conv", "convolution", output, **{**plain, **attributes})


def test_a_multi_convolution_divides_the_tiles():
    # Two forward passes, of which the first has three times the operations: 1 + 3/4 and 1 + 1/4
    # of all but two tiles. The gradient of weights is another multi-convolution.
    large, small = convolution((4, 14, 14, 48), (3, 3)), convolution((4, 14, 14, 16), (3, 3))
    gradient = convolution(
        (3, 3, 32, 16), (14, 14), input_feature_dimension=0, output_batch_dimension=2
    )
    parts = {"large": large, "small": small, "gradient": gradient}
    shapes = {"x": (4, 16, 16, 32), "w": (3, 3, 32, 48), "v": (3, 3, 32, 16), "g": (4, 14, 14, 16)}
    operands = {"large": ("x", "w"), "small": ("x", "v"), "gradient": ("x", "g")}
    body = graph(
        *(
            inner_parameter(name, *shape, first_leaf=k)
            for k, (name, shape) in enumerate(shapes.items())
        ),
        *(replace(one, name=name, inputs=operands[name]) for name, one in parts.items()),
        results=tuple(parts),
    )
    step = graph(
        *(argument(name, *shape) for name, shape in shapes.items()),
        poplar_call(
            "y", "MultiConv", *shapes, shapes=[one.outputs[0].shape for one in parts.values()]
        ),
        functions={"body": body},
    )
    found = program_costs(with_bodies_in_order(flatten(step)))["y"]

    def alone(name, tiles):
        source = [spec(*shapes[operand]) for operand in operands[name]]
        shape = convolution_of(parts[name], source)
        target = GC200.without_tiles(TILES - tiles)
        return plan(target, shape, memory_proportion=0.6)

    most = alone("large", 1 + (TILES - 2) * 3 // 4), alone("small", 1 + (TILES - 2) // 4)
    last = alone("gradient", TILES)
    assert found.cycles == max(one.cycles for one in most) + last.cycles
    assert [part.cycles for part in found.parts] == [one.cycles for one in (*most, last)]
    assert found.temporary_bytes >= last.temporary_bytes


CONVOLUTIONS = [
    (
        convolution((4, 56, 56, 64), (3, 3), window_stride=(2, 2)),
        [spec(4, 113, 113, 32), spec(3, 3, 32, 64)],
        Convolution(4, (56, 56), (3, 3), 32, 64, strides=(2, 2), dtype="float32"),
    ),
    # Depthwise.
    (
        convolution((4, 56, 56, 32), (3, 3), feature_group_count=32),
        [spec(4, 58, 58, 32), spec(3, 3, 1, 32)],
        Convolution(4, (56, 56), (3, 3), 32, 32, 32, dtype="float32"),
    ),
    # The gradient of the input of the first: strides are dilations of the gradient.
    (
        convolution(
            (4, 113, 113, 32),
            (3, 3),
            base_dilation=(2, 2),
            window_padding=((2, 2), (2, 2)),
        ),
        [spec(4, 56, 56, 64), spec(3, 3, 64, 32)],
        Convolution(
            4,
            (113, 113),
            (3, 3),
            64,
            32,
            input_dilations=(2, 2),
            dtype="float32",
            padding=((2, 2), (2, 2)),
        ),
    ),
    # The gradient of the weights: the gradient is the kernel, samples are input channels.
    (
        convolution((32, 3, 3, 64), (56, 56), window_dilation=(2, 2)),
        [spec(32, 113, 113, 4), spec(56, 56, 4, 64)],
        Convolution(32, (3, 3), (56, 56), 4, 64, kernel_dilations=(2, 2), dtype="float32"),
    ),
    # Padded, and without its first position.
    (
        convolution((4, 56, 56, 64), (3, 3), window_padding=((1, 1), (-1, 2))),
        [spec(4, 56, 57, 32), spec(3, 3, 32, 64)],
        Convolution(4, (56, 56), (3, 3), 32, 64, dtype="float32", padding=((1, 1), (0, 2))),
    ),
    # In two groups of the batch: each half of the output channels sees half the samples.
    (
        convolution((3, 5, 5, 8), (7, 7), batch_group_count=2),
        [spec(6, 11, 11, 4), spec(7, 7, 4, 8)],
        Convolution(3, (5, 5), (7, 7), 8, 8, 2, dtype="float32"),
    ),
]


@pytest.mark.parametrize(("conv", "inputs", "expected"), CONVOLUTIONS)
def test_convolutions(conv, inputs, expected):
    found = convolution_of(conv, inputs)
    assert found == expected
    if max(found.input_dilations) == 1 and not any(map(any, found.padding)):
        assert found.flops == work_of(conv, inputs).flops

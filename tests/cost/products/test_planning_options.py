"""How Poplar's options of convolutions and matrix products decide on plans."""

import pytest
from hlo_graphs import graph, op
from hlo_graphs import product as matrix_product

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.products.convolutions import matmul
from ipu_keras.cost.products.planning_options import ProductOptions, product_options
from ipu_keras.machine.target import TARGETS
from ipu_keras.program import Pipeline
from ipu_keras.report.plain_options import plain_options
from ipu_keras.settings.pipeline_choices import PipelineStageOptions

GC200 = TARGETS["gc200"]


def one(family, **place):
    return ComputeSet(name="one", family=family, ops=(), operands=(), reads=(), writes=(), **place)


def of_convolutions(value):
    return PipelineStageOptions(convolution_options={"availableMemoryProportion": value})


def test_what_goes_before_what():
    """Options of a stage before those of the program, and these before the proportion of all."""
    found = product_options(
        0.6,
        convolution_options={"availableMemoryProportion": 0.4, "partialsType": "half"},
        pipeline=Pipeline(
            device_mapping=(0, 1),
            forward_options=(of_convolutions("0.1"), of_convolutions(0.2)),
            backward_options=(of_convolutions(0.3), PipelineStageOptions()),
            weight_update_options=of_convolutions("0"),
        ),
    )
    half = "float16"
    assert found(one("convolution", stage=0)) == ProductOptions(0.1, half)
    assert found(one("convolution", stage=1)) == ProductOptions(0.2, half)
    assert found(one("convolution", stage=0, backward=True)) == ProductOptions(0.3, half)
    assert found(one("convolution", stage=1, backward=True)) == ProductOptions(0.4, half)
    assert found(one("convolution", weight_update=True)) == ProductOptions(0.0, half)
    assert found(one("convolution")) == ProductOptions(0.4, half)
    assert found(one("dot", stage=0)) == ProductOptions(0.6, "float32")


def test_sums_are_never_narrower_than_what_is_added():
    chosen = ProductOptions(0.6, "float16")
    for dtype in ("float16", "float32"):
        assert chosen.applied_to(matmul(1, 2, 3, 4, dtype)).partials_dtype == dtype


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"availableMemoryProportion": "1.5"}, "must be from 0 to 1, such as '0.2'. .*'1.5'"),
        ({"availableMemoryProportion": "much"}, "Received: 'much'"),
        ({"partialsType": "float16"}, "must be one of 'float', 'half'. Received: 'float16'"),
        ({"partialsType": ["half"]}, r"must be one of 'float', 'half'. Received: \['half'\]"),
    ],
)
@pytest.mark.parametrize("of", ["convolution_options", "matmul_options"])
def test_values_that_cannot_be(of, options, message):
    with pytest.raises(ValueError, match=message):
        CostOptions(**{of: options})


def product(dtype, **options):
    """The cost of a large square product, and the model."""
    a, b = (op(name, "parameter", (2048, 2048), dtype=dtype, role="argument") for name in "ab")
    c = matrix_product("c", (2048, 2048), "a", "b", dtype=dtype)
    found = model_graph("step", graph(a, b, c), GC200, CostOptions(**options))
    pairs = zip(found.program.compute_sets, found.costs, strict=True)
    [cost] = [cost for each, cost in pairs if each.family == "dot"]
    return cost, found


def test_sums_of_halves_take_half_of_the_time():
    """A tile multiplies and adds 128 halves in a cycle into halves, 64 into floats."""
    wide, _ = product("float16")
    narrow, _ = product("float16", matmul_options={"partialsType": "half"})
    assert wide.vertex.endswith("float16 float32")
    assert narrow.vertex.endswith("float16 float16")
    assert 0.45 < narrow.compute_cycles / wide.compute_cycles < 0.6
    same, _ = product("float32", matmul_options={"partialsType": "half"})
    assert same == product("float32")[0]


def test_less_memory_for_products():
    options = {"matmul_options": {"availableMemoryProportion": "0.01"}}
    large, _ = product("float32")
    small, found = product("float32", **options)
    assert small.temporary_bytes < 0.2 * large.temporary_bytes
    assert small.cycles > large.cycles
    other, _ = product("float32", convolution_options={"availableMemoryProportion": "0.01"})
    assert other == large
    assert plain_options(found.options)["matmul_options"] == options["matmul_options"]
    assert "convolution_options" not in plain_options(found.options)
    least, _ = product("float32", matmul_options={"availableMemoryProportion": 0})
    assert least.temporary_bytes <= small.temporary_bytes

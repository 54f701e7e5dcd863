"""Compute sets of outlined functions, made by hand."""

import pytest

from ipu_keras.cost.flat.code_sharing import with_own_code
from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, Value
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.ir import NOT_LOWERED, Op, TensorSpec

SMALL, LARGE = TensorSpec((4,), "float32"), TensorSpec((8,), "float32")


def compute(name, spec=SMALL, *, kind="tanh", family="elementwise", attributes=(), **options):
    return ComputeSet(
        name=name,
        family=family,
        ops=(Op(name, kind, (spec,), attributes=dict(attributes)),),
        operands=(spec,),
        reads=("x",),
        writes=(Value(name, spec),),
        **options,
    )


def own(*compute_sets, costs=None):
    return with_own_code(compute_sets, [Cost()] * len(compute_sets) if costs is None else costs)


def test_golden():
    """Two calls in two layers, and their gradients."""
    assert own(
        compute("dense/tanh"),
        compute("dense/outlined.f/tanh"),
        compute("dense_1/outlined.f_1/tanh"),
        compute("gradient_tape/dense_1/outlined.f_1/tanh", backward=True),
        compute("gradient_tape/dense/outlined.f/tanh", backward=True),
    ) == {
        "dense/tanh",
        "dense/outlined.f/tanh",
        "gradient_tape/dense_1/outlined.f_1/tanh",
    }


def test_loops_have_the_scope_twice():
    first = compute("outlined.f/while/body/outlined.f/while/body/tanh")
    assert own(first, compute("outlined.f_1/while/body/outlined.f_1/while/body/tanh")) == {
        first.name
    }


@pytest.mark.parametrize(
    "other",
    [
        compute("outlined.g/tanh"),
        compute("outlined.f_1/tanh_1"),
        compute("outlined.f_1/tanh", LARGE),
        compute("outlined.f_1/tanh", kind="exponential"),
        compute("outlined.f_1/tanh", ipu=1),
        compute("tanh"),
    ],
)
def test_what_differs(other):
    first = compute("outlined.f/tanh")
    assert own(first, other) == {first.name, other.name}


@pytest.mark.parametrize(
    "effect",
    [
        {"family": "random", "kind": "random"},
        {"kind": "PyFunc", "attributes": {NOT_LOWERED: True}},
    ],
)
def test_functions_with_effects_are_inlined(effect):
    """Also their gradients, and whatever else is in them."""
    names = [f"outlined.f{number}/{name}" for number in ("", "_1") for name in ("tanh", "effect")]
    names += [f"gradient_tape/{name}" for name in names]
    sets = [compute(name, **(effect if name.endswith("effect") else {})) for name in names]
    assert own(*sets) == set(names)


def dot(name, spec=SMALL, *, axis=0, **options):
    attributes = {"lhs_contracting_dimensions": (axis,)}
    return compute(name, spec, kind="dot", family="dot", attributes=attributes, **options)


@pytest.mark.parametrize("family", ["dot", "convolution", "norm", "PopnnLSTM"])
def test_equal_operations_that_are_one_function(family):
    sets = [compute(name, kind=family, family=family) for name in ("a/y", "b/z", "outlined.f/y")]
    assert own(*sets) == {"a/y"}


@pytest.mark.parametrize("family", ["elementwise", "reduce", "softmax", "gather", "Gelu"])
def test_equal_operations_that_each_have_code(family):
    assert own(*(compute(name, family=family) for name in ("a", "b"))) == {"a", "b"}


@pytest.mark.parametrize(
    "other",
    [
        dot("b", LARGE),
        dot("b", axis=1),
        dot("b", ipu=1),
        dot("b", backward=True),
        compute("b", family="convolution", kind="convolution"),
    ],
)
def test_products_that_differ(other):
    assert own(dot("a"), other) == {"a", "b"}


def test_products_with_other_plans():
    """Such as by options of their stages."""
    sets = dot("a", stage=0), dot("b", stage=1), dot("c", stage=2)
    assert own(*sets, costs=[Cost(), Cost(temporary_bytes=8), Cost()]) == {"a", "b"}


def test_what_is_computed_again_is_of_the_forward_pass():
    assert own(dot("a"), dot("b", backward=True, recomputed=True)) == {"a"}


def test_operations_of_several_parts_are_equal_if_all_of_these_are():
    inner = FlatProgram(compute_sets=(compute("y"),))
    other = FlatProgram(compute_sets=(compute("y", kind="exponential"),))
    a, b, c = (
        compute(name, kind="poplar-call", family="LayerNorm", body=body)
        for name, body in (("a", inner), ("b", inner), ("c", other))
    )
    assert own(a, b, c) == {"a", "c"}

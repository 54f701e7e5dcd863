"""Compute sets of outlined functions, made by hand."""

import pytest

from ipu_keras.cost.flat.code_sharing import with_own_code
from ipu_keras.cost.flat.compute_sets import ComputeSet, Value
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


def own(*compute_sets):
    return with_own_code(compute_sets)


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


@pytest.mark.parametrize("family", ["convolution", "dot", "norm"])
def test_equal_operations_are_looked_up(family):
    def product(name, spec=SMALL, **options):
        return compute(name, spec, kind=family, family=family, **options)

    others = [
        product("larger", LARGE),
        product("strided", attributes={"window_stride": (2,)}),
        product("elsewhere", ipu=1),
    ]
    first = product("dense/y")
    assert own(first, product("dense_1/y", recomputed=True), *others) == {
        "dense/y",
        "larger",
        "strided",
        "elsewhere",
    }
    # Options of stages make other plans.
    sets = [first, product("dense_1/y")]
    assert with_own_code(sets, ["fast", "small"]) == {"dense/y", "dense_1/y"}
    assert with_own_code(sets, ["fast", "fast"]) == {"dense/y"}


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

"""Normalizations and softmax that are written as small operations, on graphs built by hand."""

from dataclasses import replace

from hlo_graphs import argument, graph, op, spec, variable
from normalization_graphs import (
    ZERO,
    C,
    N,
    batch_norm,
    full,
    fused,
    gradient,
    passes,
    total,
    wide,
)

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.fusion import deduplicate, fuse
from ipu_keras.cost.flat.normalizations import fuse_normalizations
from ipu_keras.machine.target import TARGETS

GC200 = TARGETS["gc200"]


def test_a_batch_normalization_is_two_passes_over_its_input():
    program = fused(*batch_norm())
    assert passes(program) == [
        # Both sums at once, of `x` itself: the mean is taken from the sum of squares afterwards.
        ("sum power", ("x",), [("sum", "float32"), ("power", "float32")]),
        ("scaled shifted", ("x", "scale", "shift"), [("y", "float16")]),
    ]
    assert [one.name for one in program.compute_sets] == [
        "sum",
        "mean",
        "var",
        "root",
        "scale",
        "offset",
        "shift",
        "y",
    ]
    assert {one.layer for one in program.compute_sets} == {"bn"}


def test_its_gradient_reads_the_input_again():
    program = fused(*batch_norm(), *gradient())
    assert passes(program)[2:] == [
        ("dbeta product dgamma", ("dy", "x"), [("dbeta", "float32"), ("dgamma", "float32")]),
        # What is computed of vectors alone, `a_mean`, has no vertex for the tensor.
        (
            "centred from_var from_y dx32",
            ("dy", "x", "scale", "a", "n", "mean"),
            [("dx", "float16")],
        ),
    ]
    # Nothing of the tensor's size is kept in float32.
    values = fuse(program).values.values()
    assert not [v for v in values if v.spec == spec(N, C)]


def test_at_inference_the_statistics_are_variables():
    names = ("sum", "mean", "mean_wide", "centred", "squares", "power", "var")
    ops = [one for one in batch_norm() if one.name not in names]
    found = fused(variable("mean", C), variable("var", C), *ops)
    assert passes(found) == [("scaled shifted", ("x", "scale", "shift"), [("y", "float16")])]


def test_the_mean_may_be_subtracted_before_the_tensor_is_scaled():
    """As operations of IPUs have it, and Keras's batch normalization has not."""
    changed = {
        "scaled": full("scaled", "multiply", (N, C), "centred", "scale_wide"),
        "shifted": full("shifted", "add", (N, C), "scaled", "gamma_wide"),
        "shift_wide": wide("gamma_wide", "gamma"),
    }
    program = fused(*(changed.get(one.name, one) for one in batch_norm()))
    assert passes(program) == [
        ("sum power", ("x",), [("sum", "float32"), ("power", "float32")]),
        ("centred scaled shifted", ("x", "mean", "scale", "gamma"), [("y", "float16")]),
    ]


def test_vectors_along_different_axes_are_applied_one_by_one():
    """A layer normalization: one mean for each row, one factor for each column."""
    ops = [
        ZERO,
        argument("x", N, C),
        variable("gamma", C),
        total("power", "x", axis=1),
        full("root", "rsqrt", (N,), "power"),
        wide("root_wide", "root", axis=0),
        wide("gamma_wide", "gamma"),
        full("scale", "multiply", (N, C), "root_wide", "gamma_wide"),
        full("y", "multiply", (N, C), "x", "scale"),
    ]
    assert passes(fused(*ops)) == [
        ("power", ("x",), [("power", "float32")]),
        ("scale y", ("x", "root", "gamma"), [("y", "float32")]),
    ]


def softmax(divided_by="sum"):
    return [
        ZERO,
        argument("x", N, C),
        full("max", "reduce", (N,), "x", "zero", dimensions=(1,), operation="maximum"),
        wide("max_wide", "max", axis=0),
        full("below", "subtract", (N, C), "x", "max_wide"),
        full("exp", "exponential", (N, C), "below"),
        total("sum", "exp", axis=1),
        wide("sum_wide", divided_by, axis=0),
        full("y", "divide", (N, C), "exp", "sum_wide"),
    ]


def test_softmax_keeps_its_exponents():
    program = fused(*softmax())
    assert passes(program) == [
        ("max", ("x",), [("max", "float32")]),
        ("below exp sum", ("x", "max"), [("sum", "float32"), ("exp", "float32")]),
        ("y", ("exp", "y/reciprocals"), [("y", "float32")]),
    ]
    # Each row is multiplied by the reciprocal of its sum, of which there is one.
    assert program.compute_sets[-1].ops[0].kind == "multiply"
    inverted = program.compute_sets[-2]
    assert (inverted.name, inverted.family, inverted.reads) == (
        "y/reciprocals",
        "elementwise",
        ("sum",),
    )
    assert [one.kind for one in inverted.ops] == ["divide"]
    assert (inverted.writes[0].spec, inverted.flops) == (program.values["sum"].spec, N)


def test_reciprocals_of_numbers_are_numbers():
    program = fused(variable("n", N), *softmax(divided_by="n"))
    assert "y/reciprocals" in program.values
    ones = op("n", "constant", (N,))
    assert "y/reciprocals" not in fused(ones, *softmax(divided_by="n")).values


def test_layers_that_do_more_stay_as_they_are():
    # Somebody else reads the exponents; two results of the tensor's size.
    both = deduplicate(flatten(graph(*softmax(), results=("y", "exp"))))
    assert fuse_normalizations(both) == both
    # Another tensor takes part.
    ops = batch_norm()[:-1]
    other = fused(
        variable("w", N, C), *ops, full("y", "multiply", (N, C), "shifted", "w"), results=("y",)
    )
    assert passes(other)[1] == (
        "scaled shifted",
        ("x", "scale", "shift"),
        [("shifted", "float16")],
    )
    assert other.compute_sets[-1].name == "y"


def test_layers_share_what_is_equal():
    """Both divide by `n_wide`, which the first has in its gradient."""
    shared = {"n_wide", "gamma", "n", "zero"}
    layer = [*batch_norm(), *gradient()]
    other = [
        replace(
            one,
            name=f"{one.name}_2",
            layer="other" if one.layer == "bn" else one.layer,
            inputs=tuple(name if name in shared else f"{name}_2" for name in one.inputs),
        )
        for one in layer
        if one.name not in shared
    ]
    program = fused(*layer, *other, results=("dx", "dx_2"))
    assert len(passes(program)) == 2 * 4
    # Neither needs it any more.
    assert "n_wide" not in [one.name for one in program.compute_sets]
    made = {"x", "x_2", "gamma", "n", "float32(0.0)"}
    for one in program.compute_sets:
        assert made.issuperset(one.reads)
        made.update(value.name for value in one.writes)


def test_layers_share_a_gradient_as_halves():
    """Two layers whose results are added have one gradient, of which both ask for float32."""
    shared = {"dy", "gamma", "n", "n_wide", "zero"}
    layer = [*batch_norm(), *gradient()]
    other = [
        replace(
            one,
            name=f"{one.name}_2",
            layer="other",
            inputs=tuple(name if name in shared else f"{name}_2" for name in one.inputs),
        )
        for one in layer
        if one.name not in shared
    ]
    results = ("dx", "dx_2", "y_2")
    both = deduplicate(flatten(graph(*layer, *other, results=results)))
    (wide,) = (one for one in both.compute_sets if one.reads == ("dy",))
    assert (wide.name, wide.layer) == ("dy32", "bn")
    program = fuse_normalizations(both)
    gradients = [reads for _, reads, _ in passes(program) if "dy" in reads]
    assert gradients == [
        ("dy", "x"),
        ("dy", "x", "scale", "a", "n", "mean"),
        ("x_2", "dy"),  # for `dgamma_2` alone: `dbeta` is of both
        ("dy", "x_2", "scale_2", "a_2", "n", "mean_2"),
    ]
    assert "dy32" not in [one.name for one in program.compute_sets]


def test_what_others_read_or_nobody_did_stays():
    # `tanh` needs the shift for all elements too; no operation ever read `unread`.
    program = fused(
        *batch_norm(),
        op("unread", "broadcast", (N, C), "n", layer="next", dimensions=(1,)),
        op("z", "tanh", (N, C), "shift_wide", layer="next"),
        results=("y",),
    )
    found = [one.name for one in program.compute_sets]
    assert {"unread", "shift_wide", "z"} <= set(found)
    assert "mean_wide" not in found

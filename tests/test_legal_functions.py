"""Whatever TensorFlow computes has a model, however odd: the space, not examples of it."""

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from legal_functions import DTYPES, FLOATS, SHAPES, STEPS, function_of

from ipu_keras import profile
from ipu_keras.ir import NOT_LOWERED, UNKNOWN, family_of


def check(names, shape, dtype):
    """Profiles a function; returns which of the steps it has, and the report."""
    function, taken = function_of(names)
    report = profile(function, tf.TensorSpec(shape, dtype))
    costs = [report.cycles_per_step, *(row.cycles for row in report.rows)]
    assert min(costs) >= 0
    assert all(row.confidence == "guessed" for row in report.rows if row.family == UNKNOWN)
    named = {*report.not_lowered, *report.not_modelled}
    remarks = " ".join(report.remarks)
    for op in report.model.graph.walk():
        if family_of(op.kind) == UNKNOWN or NOT_LOWERED in op.attributes:
            name = op.attributes.get("custom_call_target", op.kind)
            assert name in named
            assert name in remarks
    return taken, report


@settings(max_examples=100, deadline=None)
@given(
    names=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6),
    shape=st.sampled_from(SHAPES),
    dtype=st.sampled_from(DTYPES),
)
def test_every_function_has_a_model(names, shape, dtype):
    check(names, shape, dtype)


def test_every_step_is_an_operation_of_some_dtype():
    """One that no function has would be no part of the space."""
    never = []
    for name in STEPS:
        for dtype in (*FLOATS[:1], tf.int32, tf.uint8, tf.complex64, tf.bool):
            function, taken = function_of([name])
            tf.function(function, autograph=False).get_concrete_function(
                tf.TensorSpec((4, 4), dtype)
            )
            if taken:
                break
        else:
            never.append(name)
    assert never == []


@pytest.mark.parametrize(
    "names",
    [
        # A loop carries a tensor without elements.
        ["empty", "Igammac"],
        # No size is known of what is drawn, nor of what it is drawn from.
        ["inverse", "boolean mask", "poisson"],
        # Keys are sorted in another shape than they were made in.
        ["cumsum", "bitcast to uint8", "sort"],
        ["NextAfter", "sort"],
    ],
)
def test_what_met_assumptions(names):
    taken, _ = check(names, (4, 4), tf.float32)
    assert taken == names


@pytest.mark.parametrize(
    ("names", "dtype", "not_lowered", "not_modelled"),
    [
        (["bitcast to uint32", "RightShift"], tf.float32, (), ()),
        (["bitcast to uint32", "BitwiseXor", "bitcast to float32"], tf.float32, (), ()),
        (["gradient of ReLU"], tf.int32, (), ()),
        (["sort", "bitcast to uint32", "sort downwards"], tf.float32, (), ()),
        (["bincount"], tf.int32, ("Cast", "DenseBincount", "Sum"), ()),
        (["range of a value"], tf.int32, ("Cast", "Range", "Sum"), ()),
        (["fft"], tf.complex64, (), ("fft",)),
        (["solve"], tf.float32, (), ("triangular-solve",)),
        (["text"], tf.float32, ("AsString", "StringToNumber"), ()),
    ],
)
def test_what_is_guessed_is_named(names, dtype, not_lowered, not_modelled):
    taken, report = check(names, (4, 4), dtype)
    assert taken == names
    assert (report.not_lowered, report.not_modelled) == (not_lowered, not_modelled)
    found = {
        f"Guessed, because {reason} them: {', '.join(kinds)}"
        for reason, kinds in [
            ("XLA cannot lower", not_lowered),
            ("the model does not know", not_modelled),
        ]
        if kinds
    }
    assert {remark for remark in report.remarks if remark.startswith("Guessed")} == found

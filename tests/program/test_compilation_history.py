"""Why programs are compiled again: what differs from the closest one before."""

import dataclasses
import doctest

import pytest

from ipu_keras.ir import TensorSpec
from ipu_keras.program import OutfeedMode, compilation_history
from ipu_keras.program.compilation_history import (
    CompilationHistory,
    Recompilation,
    Signature,
    differences,
)

FIRST = Signature(
    tensors=(
        ("data[0]", TensorSpec((8, 4), "float32")),
        ("data[1]", TensorSpec((8,), "int32")),
    ),
    repeat_count=10,
    outfeed_mode=OutfeedMode.LAST,
    compiled=None,
)


def with_tensors(*specs):
    named = tuple((f"data[{k}]", TensorSpec(*spec)) for k, spec in enumerate(specs))
    return dataclasses.replace(FIRST, tensors=named)


def test_example():
    assert doctest.testmod(compilation_history).failed == 0


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (FIRST, ()),
        (
            with_tensors(((16, 4), "float16"), ((16,), "int32")),
            (
                "data[0] has the shape (16, 4) instead of (8, 4)",
                "data[0] has the dtype float16 instead of float32",
                "data[1] has the shape (16,) instead of (8,)",
            ),
        ),
        (with_tensors(((8, 4), "float32")), ("data[1] is not given, which was before",)),
        (
            with_tensors(((8, 4), "float32"), ((8,), "int32"), ((8,), "float32")),
            ("data[2] is given, which was not before",),
        ),
        (
            dataclasses.replace(FIRST, repeat_count=3),
            ("`steps_per_execution` is 3 instead of 10",),
        ),
        (
            dataclasses.replace(FIRST, outfeed_mode=OutfeedMode.ALL),
            ("the results of all steps are returned instead of those of the last step",),
        ),
        (
            dataclasses.replace(FIRST, compiled=True),
            ("XLA is asked for instead of chosen by the compiler",),
        ),
        (
            dataclasses.replace(FIRST, compiled=False),
            ("XLA is ruled out instead of chosen by the compiler",),
        ),
    ],
)
def test_differences(new, expected):
    assert differences(new, FIRST) == expected


def test_values_that_are_no_tensors():
    two, three = (
        dataclasses.replace(FIRST, values=(("args[1]", value), ("args[2]", "None")))
        for value in ("2", "3")
    )
    assert differences(three, two) == ("args[1] is 3 instead of 2",)
    assert differences(three, FIRST) == tuple(
        f"{name} is given, which was not before" for name in ("args[1]", "args[2]")
    )
    name, _ = FIRST.tensors[0]
    without = dataclasses.replace(FIRST, tensors=FIRST.tensors[1:], values=((name, "3"),))
    assert differences(without, FIRST) == (f"{name} is 3 instead of a tensor",)
    assert differences(FIRST, without) == (f"{name} is a tensor instead of 3",)
    assert differences(FIRST, three) == tuple(
        f"{name} is not given, which was before" for name in ("args[1]", "args[2]")
    )


def test_the_first_compilation_is_none_again():
    history = CompilationHistory()
    assert history.recompilation("train", FIRST) is None
    history.add("train", FIRST)
    assert history.recompilation("test", FIRST) is None


def test_the_closest_is_compared():
    history = CompilationHistory()
    small = with_tensors(((2, 4), "float32"), ((2,), "int32"))
    for signature in (FIRST, small, dataclasses.replace(small, repeat_count=5)):
        history.add("train", signature)
    again = history.recompilation("train", dataclasses.replace(FIRST, repeat_count=1))
    assert again == Recompilation("train", ("`steps_per_execution` is 1 instead of 10",))
    # Two are as close: the one that was compiled last.
    again = history.recompilation("train", dataclasses.replace(small, repeat_count=1))
    assert again.reasons == ("`steps_per_execution` is 1 instead of 5",)


def test_nothing_differs():
    history = CompilationHistory()
    history.add("train", FIRST)
    assert str(history.recompilation("train", FIRST)) == (
        "Program 'train' is compiled again: its step was made anew: `compile` was called, options "
        "were set, the system was configured otherwise, or another method runs it"
    )

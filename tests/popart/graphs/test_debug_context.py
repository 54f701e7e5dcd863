"""Names by contexts, and what libraries note of operations."""

import doctest

import pytest

from ipu_keras import popart
from ipu_keras.popart.graphs import debug_context


def test_examples():
    assert doctest.testmod(debug_context).failed == 0


def test_names_of_contexts_within_one_another():
    here = popart.SourceLocation("net", "net.py", 3)
    layer = popart.DebugInfo(popart.DebugContext("layer", here), "library")
    inner = popart.DebugInfo(popart.DebugContext(layer, "inner"), "library")
    names = [
        popart.DebugContext(*given).name
        for given in ([], [here], ["a", here], [inner], [inner, here], [inner, "w", here])
    ]
    assert names == ["", "", "a", "layer/inner", "layer/inner", "layer/inner/w"]


def test_builders_take_contexts_within_one_another():
    builder = popart.Builder()
    layer = popart.DebugInfo(popart.DebugContext("layer"), "library")
    x = builder.addInputTensor("FLOAT", [2], popart.DebugContext(layer, "x"))
    y = builder.aiOnnx.relu([x], popart.DebugContext(layer))
    assert (x, y) == ("layer/x", "Relu:0")


def test_the_first_value_of_a_name_stays():
    layer = popart.DebugInfo("layer", "library")
    assert layer.setValue("kind", "dense") is True
    assert layer.setValue("kind", "sparse") is False
    assert layer.values == {"kind": "dense"}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: popart.DebugContext(3), "made of a DebugInfo, the `name`.*Received: 3"),
        (lambda: popart.DebugContext("a", "b"), "Received: 'b'"),
        (lambda: popart.DebugInfo("a", None), "`api` of a DebugInfo is a string.*api=None"),
        (lambda: popart.DebugInfo(3, "a"), "debugContext=3"),
        (lambda: popart.DebugInfo("a", "b").setValue("k", 3), "`value` of a value.*value=3"),
        (lambda: popart.SourceLocation("f", "g", "3"), "whole number.*lineNumber='3'"),
    ],
)
def test_wrong_arguments(make, text):
    with pytest.raises(popart.popart_exception, match=text):
        make()

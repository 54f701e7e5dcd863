"""Lists of operations, under the names that scripts have."""

import doctest

import pytest

from ipu_keras import popart
from ipu_keras.popart.operations import identifiers


def test_examples():
    assert doctest.testmod(identifiers).failed == 0


def test_what_there_is_runs_and_what_is_not_there_is_named():
    there = popart.getSupportedOperations(False)
    assert there == popart.getSupportedOperations(True)
    assert len(there) == len(set(there)) > 200
    versions = [each.version for each in there if (each.domain, each.type) == ("ai.onnx", "TopK")]
    assert versions == sorted(versions)
    assert len(versions) > 1
    missing = popart.getUnsupportedOperations()
    assert {(each.domain, each.type) for each in missing}.isdisjoint(
        (each.domain, each.type) for each in there
    )
    # All of the opsets 6 to 11 is there; of ai.onnx.ml, what has no text or dictionaries.
    assert {each.domain for each in missing} == {"ai.onnx.ml"}


def test_a_builder_takes_the_default_opsets():
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    builder.aiOnnx.neg([x])
    same = popart.Builder(opsets={"ai.onnx": popart.defaultAiOnnxOpset})
    assert builder.aiOnnx.version == same.aiOnnx.version == 10
    assert builder.aiGraphcore.version == popart.defaultAiGraphcoreOpset == 1
    assert popart.defaultAiOnnxMlOpset == 1


def test_identifiers_are_frozen():
    with pytest.raises(AttributeError):
        popart.getSupportedOperations()[0].version = 3

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


def test_operations_of_an_older_opset():
    older, newer = (
        {(each.type, each.version) for each in identifiers._of_onnx(opset)} for opset in (9, 11)
    )
    assert ("TopK", 1) in older
    assert ("TopK", 11) in newer
    assert popart.getUnsupportedOperations(9) == popart.getUnsupportedOperations()


def test_what_operations_take_and_return():
    found = popart.getSupportedOperationsDefinition(False)
    assert sorted(found) == popart.getSupportedOperations()
    by_kind = {(each.domain, each.type): definition for each, definition in found.items()}
    product = by_kind["ai.onnx", "MatMul"]
    assert [each.name for each in (*product.inputs, *product.outputs)] == ["A", "B", "Y"]
    assert popart.DataType.FLOAT16 in product.inputs[0].supportedTensors
    assert popart.DataType.BOOL not in product.inputs[0].supportedTensors
    loss = by_kind["ai.graphcore", "Nll"]
    assert "ignoreIndex" in loss.attributes
    assert [each.name for each in loss.inputs] == ["probabilities", "labels"]

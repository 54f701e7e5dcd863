"""Types of results: by ONNX, by tracing, and of what follows from values."""

import numpy as np
import pytest

from ipu_keras.popart.builder import Builder
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.tensor_types import shape_of


def test_shapes_follow_from_values():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2, 3, 4])
    shape = builder.addInitializedInputTensor(np.array([0, -1], np.int64))
    assert builder.getTensorShape(builder.aiOnnx.reshape([x, shape])) == [2, 12]
    constant = builder.aiOnnx.constant(np.array([6, 4], np.int64))
    assert builder.getTensorShape(builder.aiOnnx.reshape([x, constant])) == [6, 4]
    given = builder.addInputTensor("INT64", [2])
    unknown = builder.aiOnnx.reshape([x, given])
    with pytest.raises(popart_exception, match="is not known before the model runs"):
        builder.getTensorShape(unknown)
    with pytest.raises(popart_exception, match=r"In Reshape 'Reshape:0/3': .* elements: \[5, 5"):
        builder.reshape_const(builder.aiOnnx, [x], [5, 5])


def test_values_reach_into_subgraphs():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    shape = builder.addInitializedInputTensor(np.array([3, 2], np.int64))
    branch = builder.createSubgraphBuilder()
    assert branch.getTensorShape(branch.aiOnnx.reshape([x, shape])) == [3, 2]


def test_operations_that_onnx_says_nothing_of_are_traced():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    y = builder.addInputTensor("FLOAT", [3])
    assert builder.getTensorShape(builder.aiOnnxOpset6.add([x, y], broadcast=1)) == [2, 3]


def test_types_that_onnx_does_not_list_are_none_of_its_business():
    builder = Builder()
    x = builder.addInputTensor("INT32", [2, 3])
    y = builder.aiOnnx.relu([x])
    assert builder.getTensorDtypeString(y) == "int32"


def test_what_is_around_is_known_within():
    builder = Builder(opsets={"ai.onnx": 11})
    x = builder.addInputTensor("FLOAT", [2, 3])
    condition = builder.addInputTensor("BOOL", [])
    branches = []
    for size in (2, 2):
        branch = builder.createSubgraphBuilder()
        weights = branch.addInitializedInputTensor(np.zeros((3, size), np.float32))
        branch.addOutputTensor(branch.aiOnnx.matmul([x, weights]))
        branches.append(branch)
    assert builder.getTensorShape(builder.aiOnnx.logical_if([condition], 1, *branches)[0]) == [2, 2]


def test_nothing_follows_from_nothing():
    builder = Builder()
    body = builder.createSubgraphBuilder()
    x = body.addUntypedInputTensor()
    y = body.aiOnnx.relu([x])
    z = body.aiOnnx.matmul([y, x])
    assert shape_of(body.draft.types[z]) is None


def test_sizes_that_are_not_known_are_not_the_same():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    y = builder.addInputTensor("FLOAT", [4, 5])
    first, second = builder.aiOnnx.nonzero([x]), builder.aiOnnx.nonzero([y])
    for id_ in (first, second):
        assert shape_of(builder.draft.types[id_]) == [2, None]
        assert not any(size.dim_param for size in builder.draft.types[id_].tensor_type.shape.dim)


def test_what_is_known_is_computed_at_once():
    builder = Builder(opsets={"ai.onnx": 11})
    x = builder.addInputTensor("FLOAT", [4, 3])
    numbers = [builder.aiOnnx.constant(np.array([each], np.int64)) for each in (2, -2)]
    shape = builder.aiOnnx.add(numbers)
    assert builder.getTensorShape(shape) == [1]
    np.testing.assert_array_equal(builder.draft.known[shape], [0])
    weights = builder.addInitializedInputTensor(np.ones(3, np.float32))
    assert builder.getTensorShape(builder.aiOnnx.add([x, weights])) == [4, 3]


def test_unknown_operations_within_are_no_reason_to_refuse():
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [4])
    condition = builder.addInputTensor("BOOL", [])
    branches = []
    for _ in range(2):
        branch = builder.createSubgraphBuilder()
        (result,) = branch.customOp("Mine", 1, "com.acme", [x], {})
        branch.addOutputTensor(branch.aiOnnx.neg([result]))
        branches.append(branch)
    (result,) = builder.aiOnnx.logical_if([condition], 1, *branches)
    assert shape_of(builder.draft.types[result]) is None

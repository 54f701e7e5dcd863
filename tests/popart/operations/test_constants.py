import numpy as np
import onnx
import pytest
import tensorflow as tf
from popart_nodes import Case, case, check

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.parsing import parsed
from ipu_keras.popart.operations.evaluation import outputs_of

HALF = np.float16


@pytest.mark.parametrize(
    "case",
    [
        case("Constant", [], [1.0, 2.0], version=6, value=np.float32([1, 2])),
        case("Constant", [], np.array(HALF(1)), value=np.array(HALF(1))),
        case("ConstantOfShape", [[2, 3]], np.zeros((2, 3), np.float32)),
        case("ConstantOfShape", [[2]], [7, 7], version=9, value=np.array([7])),
        case("ConstantOfShape", [np.zeros(0, np.int64)], HALF(1), value=HALF([1])),
        case("ConstantOfShape", [[0, 2]], np.zeros((0, 2), bool), value=np.array([True])),
        case("EyeLike", [HALF([[5, 5, 5], [5, 5, 5]])], HALF([[1, 0, 0], [0, 1, 0]])),
        case("EyeLike", [[[5, 5], [5, 5]]], [[0.0, 1.0], [0.0, 0.0]], k=1, dtype=1, version=9),
        case("EyeLike", [[[5, 5], [5, 5]]], [[0, 0], [1, 0]], k=-1),
        case("Range", [3, 9, 3], [3, 6]),
        case("Range", [np.int16(5), np.int16(1), np.int16(-2)], np.int16([5, 3])),
        case("Range", [1.0, 2.5, 0.5], [1.0, 1.5, 2.0]),
        case("Range", [5, 1, 2], np.zeros(0, np.int64)),
    ],
)
def test_it_makes_what_pencil_and_paper_do(case):
    check(case)


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_a_sparse_constant_is_filled_with_zeros(indices):
    sparse = onnx.helper.make_sparse_tensor(
        onnx.numpy_helper.from_array(np.float32([7, 8])),
        onnx.numpy_helper.from_array(np.array(indices)),
        [2, 3],
    )
    node = onnx.helper.make_node("Constant", [], ["y"], sparse_value=sparse)
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 3])
    graph = onnx.helper.make_graph([node], "one", [], [output])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 11)])
    (result,) = outputs_of(parsed(model), {})
    assert result.tolist() == [[0, 7, 0], [0, 0, 8]]


def test_a_constant_has_one_value():
    with pytest.raises(popart_exception, match=r"`value` and `sparse_value` .* Received: none"):
        check(Case("Constant", [], None))
    one = np.ones(1)
    with pytest.raises(popart_exception, match=r"`value` and `sparse_value` .* Received: both"):
        check(Case("Constant", [], None, {"value": one, "sparse_value": one}))


def test_only_matrices_have_a_diagonal():
    with pytest.raises(popart_exception, match=r"must be a matrix\. Received one of shape \(2,\)"):
        check(Case("EyeLike", [[1, 2]], None))


def test_a_range_without_a_step_is_refused():
    with pytest.raises(popart_exception, match=r"`delta` must not be 0\. Received: .* 1, 5 and 0"):
        check(Case("Range", [1, 5, 0], None))


def test_a_diagonal_of_unknown_size_is_made():
    model = Case("EyeLike", [[[5, 5], [5, 5]]], None, {"k": 1}).model()

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.int64)], autograph=False)
    def run(x):
        return outputs_of(model, {"x0": x})[0]

    assert run(tf.zeros([2, 2], tf.int64)).numpy().tolist() == [[0, 1], [0, 0]]

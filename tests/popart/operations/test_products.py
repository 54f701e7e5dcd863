import numpy as np
import pytest
from popart_nodes import Case, case, check, check_gradient

from ipu_keras.popart.exceptions import popart_exception

HALF = np.float16
A = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
B = [[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]]
AB = [[1.0, 2.0, 4.0], [3.0, 4.0, 10.0], [5.0, 6.0, 16.0]]


@pytest.mark.parametrize(
    "case",
    [
        case("MatMul", [A, B], AB, version=6),
        case("MatMul", [HALF(A), HALF(B)], HALF(AB)),
        case("MatMul", [[A, A], B], [AB, AB]),
        case("MatMul", [[1.0, 2.0], B], [1.0, 2.0, 4.0]),
        case("MatMul", [A, [1.0, 2.0]], [5.0, 11.0, 17.0]),
        case("MatMul", [[1.0, 2.0], [3.0, 4.0]], 11.0),
        case("MatMul", [[A], [1.0, 2.0]], [[5.0, 11.0, 17.0]]),
        case("MatMul", [[[1, 2]], [[3], [4]]], [[11]], version=9),
        case("MatMul", [np.uint32([[2**31, 1]]), np.uint32([[2], [5]])], np.uint32([[5]])),
        case("MatMul", [np.zeros((2, 0), HALF), np.zeros((0, 3), HALF)], np.zeros((2, 3), HALF)),
        case("Gemm", [A, B], AB),
        case("Gemm", [A, B, [1.0, 2.0, 3.0]], (np.float32(AB) + np.float32([1, 2, 3])), version=7),
        case("Gemm", [A, B, [[1.0, 2.0, 3.0]]], (np.float32(AB) + np.float32([1, 2, 3]))),
        case("Gemm", [A, B, [[1.0], [2.0], [3.0]]], np.float32(AB) + np.float32([[1], [2], [3]])),
        case("Gemm", [A, B, 1.0], np.float32(AB) + np.float32(1), version=9),
        case(
            "Gemm",
            [np.float32(A).T, np.float32(B).T, 2.0],
            0.5 * np.float32(AB) - np.float32(0.5),
            alpha=0.5,
            beta=-0.25,
            transA=1,
            transB=1,
        ),
        case("Gemm", [HALF(A), HALF(B), HALF(1)], 2 * HALF(AB) + HALF(1), alpha=2.0),
        case("Gemm", [[[1, 2]], [[3], [4]], 10], [[10]], alpha=0.5, beta=0.5),
        case("Gemm", [A, B, np.ones((3, 3), np.float32)], np.float32(AB) + 1, version=6),
        case("Gemm", [A, B, [1.0]], np.float32(AB) + 1, version=6, broadcast=1),
        case("Det", [[[1.0, 2.0], [3.0, 4.0]]], -2.0),
        case("Det", [HALF([[[1, 2], [3, 4]], [[2, 0], [0, 3]]])], HALF([-2, 6])),
    ],
)
def test_it_computes_what_pencil_and_paper_do(case):
    check(case)


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes"),
    [
        ("MatMul", [[A, A], B], {}),
        ("MatMul", [[1.0, 2.0], B], {}),
        ("MatMul", [A, [1.0, 2.0]], {}),
        ("MatMul", [[1.0, 2.0], [3.0, 4.0]], {}),
        ("Gemm", [A, B, [[1.0, 2.0, 3.0]]], {"alpha": 0.5, "beta": 0.25}),
        ("Gemm", [A, A, 1.0], {"transB": 1}),
        ("Det", [[[1.0, 2.0], [3.0, 4.0]]], {}),
    ],
)
def test_its_gradient_is_that_of_differences(kind, inputs, attributes):
    check_gradient(kind, inputs, **attributes)


def test_a_third_matrix_has_the_shape_of_the_result_in_opset_6():
    with pytest.raises(popart_exception, match=r"shape \(3, 3\) .*Received: \(3,\). Set `broadcas"):
        check(Case("Gemm", [A, B, [1.0, 2.0, 3.0]], None, version=6))


@pytest.mark.parametrize(
    ("mode", "factor", "wrong"),
    [
        ("input_channels", 2, "input channels dim 3"),
        ("reducing_dim", 4, "reducing dim 2"),
        ("output_channels", 2, "output channels dim 3"),
        ("output_channels", 3, None),
        ("none", 5, None),
    ],
)
def test_a_product_is_divided_into_equal_parts(mode, factor, wrong):
    annotations = {"__serialize_matmul_mode": mode, "__serialize_matmul_factor": factor}
    divided = Case("MatMul", [A, B], AB, annotations)
    if wrong is None:
        check(divided)
        return
    with pytest.raises(
        popart_exception, match=f"Invalid serialisation factor {factor} for {wrong}"
    ):
        check(divided)

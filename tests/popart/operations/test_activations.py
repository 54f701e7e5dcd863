import numpy as np
import pytest
from popart_nodes import case, check, check_gradient

HALF = np.float16
# exp(-1) - 1
DOWN = -0.63212055
LOG_2, LOG_3, LOG_6 = np.log([2.0, 3.0, 6.0])
# The second row is twice as likely as the first, if both are rows.
PAIR = [[0.0, LOG_3], [LOG_2, LOG_6]]


@pytest.mark.parametrize(
    "case",
    [
        case("Relu", [[-1.0, 0.0, 2.0]], [0.0, 0.0, 2.0], version=6),
        case("Relu", [HALF(-1)], HALF(0)),
        case("LeakyRelu", [[-1.0, 2.0]], [-0.01, 2.0]),
        case("LeakyRelu", [HALF([-1, 2])], HALF([-0.5, 2]), alpha=0.5),
        case("LeakyRelu", [[-1.0, 2.0]], [0.0, 2.0], alpha=0.0),
        case("PRelu", [[[-1.0, -2.0], [3.0, -4.0]], [0.5, 0.25]], [[-0.5, -0.5], [3.0, -1.0]]),
        # One slope a channel: the second axis, though the last is as long.
        case(
            "PRelu",
            [[[[-1.0, -2.0], [3.0, -4.0]]], [0.5, 0.25]],
            [[[-0.5, -1.0], [3.0, -1.0]]],
            version=6,
        ),
        case("PRelu", [[-1.0, 2.0], [0.5]], [-0.5, 2.0], version=6),
        case("ThresholdedRelu", [[0.5, 1.0, 1.5]], [0.0, 0.0, 1.5]),
        case("ThresholdedRelu", [[-2.0, -1.0]], [0.0, -1.0], alpha=-1.5, version=10),
        case("Elu", [[-1.0, 2.0]], [DOWN, 2.0]),
        case("Elu", [HALF([-1, 2])], HALF([2 * DOWN, 2]), alpha=2.0),
        case("Selu", [[-1.0, 2.0]], [1.5 * 2 * DOWN, 3.0], alpha=2.0, gamma=1.5),
        case("Selu", [1.0], 1.0507010),
        case("Shrink", [[-2.0, -0.5, 0.25, 2.0]], [-2.0, 0.0, 0.0, 2.0]),
        case("Shrink", [[-2.0, 1.0, 2.0]], [-0.5, 0.0, 0.5], lambd=1.5, bias=1.5),
        case("Shrink", [np.int32([-2, 1, 2])], np.int32([-1, 0, 1]), lambd=1.5, bias=1.0),
        case("Sigmoid", [[0.0, LOG_3]], [0.5, 0.75]),
        case("HardSigmoid", [[-5.0, 0.0, 1.0, 5.0]], [0.0, 0.5, 0.7, 1.0]),
        case("HardSigmoid", [HALF([0, 1])], HALF([0.25, 0.75]), alpha=0.5, beta=0.25),
        case("Softplus", [[0.0, LOG_3]], [LOG_2, 2 * LOG_2]),
        case("Softsign", [[-1.0, 3.0]], [-0.5, 0.75]),
        case("Softmax", [PAIR], [[0.25, 0.75], [0.25, 0.75]]),
        case("Softmax", [PAIR], [[0.25, 0.75], [0.25, 0.75]], axis=-1),
        # All axes from one on are a row.
        case("Softmax", [PAIR], [[1 / 12, 3 / 12], [2 / 12, 6 / 12]], axis=0),
        case("Softmax", [[PAIR]], [[[1 / 12, 3 / 12], [2 / 12, 6 / 12]]], axis=-2, version=6),
        case("Softmax", [HALF([[0, 0]])], HALF([[0.5, 0.5]])),
        case("Softmax", [np.zeros((0, 2, 3), HALF)], np.zeros((0, 2, 3), HALF)),
        case("LogSoftmax", [[[0.0, LOG_3]]], [[-2 * LOG_2, LOG_3 - 2 * LOG_2]]),
        case("Hardmax", [[[1.0, 3.0, 3.0], [2.0, 1.0, 0.0]]], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
        case("Hardmax", [[[1.0, 3.0], [4.0, 1.0]]], [[0.0, 0.0], [1.0, 0.0]], axis=0),
    ],
)
def test_it_computes_what_pencil_and_paper_do(case):
    check(case)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("Relu", {}),
        ("LeakyRelu", {"alpha": 0.25}),
        ("ThresholdedRelu", {"alpha": 0.75}),
        ("Elu", {"alpha": 0.5}),
        ("Selu", {}),
        ("Shrink", {"lambd": 0.75, "bias": 0.25}),
        ("Sigmoid", {}),
        ("HardSigmoid", {}),
        ("Softplus", {}),
        ("Softsign", {}),
        ("Softmax", {}),
        ("Softmax", {"axis": 0}),
        ("LogSoftmax", {}),
        ("LogSoftmax", {"axis": 0}),
    ],
)
def test_its_gradient_is_that_of_differences(kind, attributes):
    check_gradient(kind, [[[-1.5, -0.5, 0.25], [0.5, 1.5, 2.0]]], **attributes)


def test_slopes_have_a_gradient():
    check_gradient("PRelu", [[[-1.5, -0.5], [0.5, -1.0]], [0.5, 0.25]])

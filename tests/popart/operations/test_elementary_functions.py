import numpy as np
import pytest
from popart_nodes import case, check, check_gradient

# To seven digits, as tables have them.
E = 2.7182817
PI = np.pi


@pytest.mark.parametrize(
    "case",
    [
        case("Sqrt", [[4.0, 2.25]], [2.0, 1.5]),
        case("Sqrt", [np.float16(4)], np.float16(2)),
        case("Exp", [[0.0, 1.0]], [1.0, E]),
        case("Log", [[1.0, E]], [0.0, 1.0]),
        case("Erf", [[0.0, 1.0, -1.0]], [0.0, 0.8427008, -0.8427008]),
        case("Sin", [[0.0, PI / 6]], [0.0, 0.5]),
        case("Cos", [[0.0, PI / 3]], [1.0, 0.5]),
        case("Tan", [[0.0, PI / 4]], [0.0, 1.0]),
        case("Asin", [[0.0, 0.5]], [0.0, PI / 6]),
        case("Acos", [[1.0, 0.5]], [0.0, PI / 3]),
        case("Atan", [[0.0, 1.0]], [0.0, PI / 4]),
        case("Sinh", [[0.0, 1.0]], [0.0, 1.1752012]),
        case("Cosh", [[0.0, 1.0]], [1.0, 1.5430806]),
        case("Tanh", [[0.0, 1.0]], [0.0, 0.7615942]),
        case("Asinh", [[0.0, 1.1752012]], [0.0, 1.0]),
        case("Acosh", [[1.0, 1.5430806]], [0.0, 1.0]),
        case("Atanh", [[0.0, 0.7615942]], [0.0, 1.0]),
        case("Tanh", [np.zeros((2, 0), np.float16)], np.zeros((2, 0), np.float16), version=6),
    ],
)
def test_it_computes_what_tables_have(case):
    check(case)


@pytest.mark.parametrize(
    "kind",
    [
        "Sqrt",
        "Exp",
        "Log",
        "Erf",
        "Sin",
        "Cos",
        "Tan",
        "Asin",
        "Acos",
        "Atan",
        "Sinh",
        "Cosh",
        "Tanh",
        "Asinh",
        "Atanh",
    ],
)
def test_its_gradient_is_that_of_differences(kind):
    check_gradient(kind, [[0.25, 0.5, 0.75]])


def test_the_gradient_of_acosh_is_that_of_differences():
    check_gradient("Acosh", [[1.25, 2.5]])

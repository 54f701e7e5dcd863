import numpy as np
import pytest
from popart_nodes import Case, check

from ipu_keras.popart.exceptions import popart_exception

KINDS = ("Add", "Sub", "Mul", "Div", "Pow", "Equal", "Less", "Greater", "And", "Or", "Xor")


def operands(kind, *shapes):
    dtype = bool if kind in ("And", "Or", "Xor") else np.int32 if kind == "Equal" else np.float32
    return [np.ones(shape, dtype) for shape in shapes]


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_that_differ_are_refused(kind):
    with pytest.raises(popart_exception, match=r"`broadcast` is 0. Received: \(2, 3\) and \(3,\)"):
        check(Case(kind, operands(kind, (2, 3), (3,)), None, version=6))


@pytest.mark.parametrize("kind", KINDS)
def test_axes_stand_where_they_are_told_to(kind):
    a, b = operands(kind, (2, 3, 4), (2, 3))
    functions = {
        "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power,
        "Equal": np.equal, "Less": np.less, "Greater": np.greater,
        "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
    }  # fmt: skip
    b[1, 2] = 0
    for axis in (0, -3):
        expected = functions[kind](a, b[:, :, np.newaxis]) if kind != "Div" else None
        if expected is not None:
            check(Case(kind, [a, b], expected, {"broadcast": 1, "axis": axis}, version=6))


def test_axes_end_with_those_of_the_first():
    with pytest.raises(popart_exception, match=r"shape \(3, 4\), .*\(2, 3\).*Received: axis=1"):
        check(Case("Add", operands("Add", (2, 3), (3, 4)), None, {"broadcast": 1, "axis": 1}, 6))

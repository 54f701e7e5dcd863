import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from popart_nodes import Case, case, check, check_gradient, traced

from ipu_keras.popart.exceptions import popart_exception

HALF = np.float16
GRID = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
LARGEST, SMALLEST = np.iinfo(np.int64).max, np.iinfo(np.int64).min
EMPTY = np.zeros((2, 0), np.float32)
CUBE = [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


@pytest.mark.parametrize(
    "case",
    [
        case("Slice", [GRID], [[5.0]], version=6, starts=[1, 1], ends=[2, 2]),
        case("Slice", [GRID], [[2.0], [5.0]], version=9, starts=[-2], ends=[-1], axes=[1]),
        case("Slice", [GRID, [0], [1]], [[1.0, 2.0, 3.0]], version=10),
        case("Slice", [GRID, [0], [LARGEST], [-1], [2]], [[1.0, 3.0], [4.0, 6.0]]),
        case("Slice", [GRID, [-1], [SMALLEST], [1], [-2]], [[3.0, 1.0], [6.0, 4.0]]),
        case("Slice", [GRID, [LARGEST], [0], [1], [-1]], [[3.0, 2.0], [6.0, 5.0]]),
        case("Slice", [HALF(GRID), [5], [9]], np.zeros((0, 3), HALF)),
        case("Gather", [GRID, [1, 0]], [GRID[1], GRID[0]]),
        case("Gather", [GRID, [[0, -1]]], [[[1.0, 3.0]], [[4.0, 6.0]]], axis=1),
        case("Gather", [HALF(GRID), np.int32(-1)], HALF([3, 6]), axis=-1, version=6),
        case("Gather", [GRID, np.uint32([1, 0])], [GRID[1], GRID[0]]),
        case("Gather", [GRID, np.zeros((0,), np.int64)], np.zeros((0, 3), np.float32)),
        # Of what is empty nothing can be taken, and some of it can.
        case("Gather", [EMPTY, np.zeros((0, 3), int)], np.zeros((2, 0, 3), np.float32), axis=1),
        case("Gather", [EMPTY, [1, 0, 1]], np.zeros((3, 0), np.float32)),
        case("GatherElements", [EMPTY, np.zeros((2, 0), np.int64)], EMPTY, axis=1),
        case("GatherND", [EMPTY, np.zeros((0, 2), np.int64)], np.zeros(0, np.float32)),
        case("GatherND", [EMPTY, [[1], [0]]], EMPTY),
        case("GatherElements", [GRID, [[1, -1, 0]]], [[4.0, 5.0, 3.0]]),
        case("GatherElements", [GRID, np.int8([[1, -1, 0]])], [[4.0, 5.0, 3.0]]),
        case("GatherElements", [GRID, [[2], [-3]]], [[3.0], [4.0]], axis=-1),
        case("GatherND", [CUBE, [[0, 1], [1, -2]]], [[2, 3], [4, 5]]),
        case("GatherND", [CUBE, np.uint8([[0, 1]])], [[2, 3]]),
        case("GatherND", [CUBE, [[0, 1, 1], [-1, 0, 0]]], [3, 4]),
        case("ScatterElements", [GRID, [[1, 0, -1]], [[7.0, 8.0, 9.0]]],
             [[1.0, 8.0, 3.0], [7.0, 5.0, 9.0]]),
        case("ScatterElements", [HALF([[1, 2, 3]]), [[-1]], HALF([[9]])], HALF([[1, 2, 9]]),
             axis=1),
        case("Scatter", [GRID, [[1]], [[9.0]]], [[1.0, 9.0, 3.0], [4.0, 5.0, 6.0]], version=9,
             axis=1),
        case("Scatter", [GRID, np.uint32([[1]]), [[9.0]]], [[1.0, 2.0, 3.0], [9.0, 5.0, 6.0]],
             version=10),
        case("Scatter", [GRID, [[1]], [[9.0]]], [[1.0, 2.0, 3.0], [9.0, 5.0, 6.0]], version=10),
        case("ScatterND", [CUBE, [[0, 1], [1, -2]], [[8, 9], [6, 7]]],
             [[[0, 1], [8, 9]], [[6, 7], [6, 7]]]),
        case("OneHot", [[0, 2, -1, 3], 3, [0.0, 5.0]],
             [[5.0, 0.0, 0.0], [0.0, 0.0, 5.0], [0.0, 0.0, 5.0], [0.0, 0.0, 0.0]]),
        # From below 0 nothing is counted before version 11.
        case("OneHot", [[0, -1], [2], [3, 4]], [[4, 3], [3, 3]], version=9),
        case("OneHot", [[[1, 0]], 2, HALF([0, 1])], HALF([[[0, 1]], [[1, 0]]]), axis=0),
        case("OneHot", [[[1.0, 0.0]], 2, [False, True]], [[[False, True], [True, False]]],
             axis=-2),
        case("OneHot", [1, 2, [0, 1]], [0, 1]),
        case("NonZero", [[[1, 0], [1, 1]]], [[0, 1, 1], [0, 0, 1]], version=9),
        case("NonZero", [HALF([0, 2, 0])], [[1]]),
        case("NonZero", [np.zeros((0, 2), bool)], np.zeros((2, 0), np.int64)),
        case("Compress", [GRID, [False, True]], [[4.0, 5.0, 6.0]], version=9, axis=0),
        case("Compress", [GRID, [False, True]], [[2.0], [5.0]], axis=-1),
        case("Compress", [GRID, [False, True, False, False, True]], [2.0, 5.0]),
        case("Compress", [HALF(GRID), [False]], np.zeros((0, 3), HALF), axis=0),
        case("Unique", [[2, 1, 1, 3, 4, 3]],
             ([1, 2, 3, 4], [1, 0, 3, 4], [1, 0, 0, 2, 3, 2], [2, 1, 2, 1])),
        case("Unique", [HALF([2, 1, 1, 3])], (HALF([2, 1, 3]), [0, 1, 3], [0, 1, 1, 2], [1, 2, 1]),
             sorted=0),
        case("Unique", [[[2, 1], [1, 3]]], ([1, 2, 3],)),
        case("Unique", [[[1, 0, 0], [1, 0, 0], [1, -3, 4]]],
             ([[1, -3, 4], [1, 0, 0]], [2, 0], [1, 1, 0], [1, 2]), axis=0),
        case("Unique", [[[1, 0, 1], [2, 3, 2]]], ([[0, 1], [3, 2]], [1, 0], [1, 0, 1], [1, 2]),
             axis=-1),
        case("ReverseSequence", [[[1, 2], [3, 4], [5, 6]], [2, 3]], [[3, 6], [1, 4], [5, 2]]),
        case("ReverseSequence", [HALF([[1, 2, 3], [4, 5, 6]]), [1, 2]],
             HALF([[1, 2, 3], [5, 4, 6]]), batch_axis=0, time_axis=1, version=10),
    ],
)  # fmt: skip
def test_it_computes_what_pencil_and_paper_do(case):
    check(case)


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes"),
    [
        ("Slice", [GRID, [-1], [SMALLEST], [1], [-2]], {}),
        ("Gather", [GRID, [1, -1, 1]], {}),
        ("GatherElements", [GRID, [[1, -1, 0]]], {}),
        ("GatherND", [GRID, [[0, 1], [1, -2]]], {}),
        ("ScatterElements", [GRID, [[1, 0, -1]], [[7.0, 8.0, 9.0]]], {}),
        ("Scatter", [GRID, [[1]], [[9.0]]], {"version": 9}),
        ("ScatterND", [GRID, [[0, 1], [1, -2]], [7.0, 8.0]], {}),
        ("OneHot", [[0, 2, -1], 3, [0.5, 5.0]], {}),
        ("Compress", [GRID, [False, True]], {"axis": 1}),
        ("ReverseSequence", [GRID, [2, 1, 1]], {}),
    ],
)
def test_its_gradient_is_that_of_differences(kind, inputs, attributes):
    check_gradient(kind, inputs, **attributes)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_parts_are_those_of_numpy(data):
    shape = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True, min_size=1))
    bounds = st.integers(-8, 8) | st.sampled_from([SMALLEST, LARGEST])
    starts, ends = (np.array(data.draw(st.tuples(*[bounds] * len(axes)))) for _ in range(2))
    steps = data.draw(st.tuples(*[st.sampled_from([-2, -1, 1, 3])] * len(axes)))
    slices = [slice(None)] * len(shape)
    for axis, *bound in zip(axes, starts, ends, steps, strict=True):
        slices[axis] = slice(*bound)
    named = [axis - len(shape) if data.draw(st.booleans()) else axis for axis in axes]
    check(Case("Slice", [x, starts, ends, named, np.array(steps)], x[tuple(slices)]))


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_what_is_unique_is_that_of_numpy(data):
    shape = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 3)))
    numbers = data.draw(st.lists(st.integers(-1, 1), min_size=12, max_size=12))
    x = np.array(numbers[: np.prod(shape)], np.int32).reshape(shape)
    axis = data.draw(st.sampled_from([None, 0, 1, -1]))
    values, *others = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    attributes = {} if axis is None else {"axis": axis}
    expected = (values, *(one.reshape(-1) for one in others))
    check(Case("Unique", [x], expected, attributes))


@pytest.mark.parametrize(
    ("kind", "inputs", "size", "received"),
    [
        ("Gather", [GRID, [[0], [2]]], 2, 2),
        ("Gather", [GRID, -3], 2, -3),
        ("GatherElements", [GRID, [[1, 2, 0]]], 2, 2),
        ("GatherND", [GRID, [[0, 2], [1, 3]]], 3, 3),
        ("GatherND", [GRID, [[-3, 2]]], 2, -3),
        ("ScatterElements", [GRID, [[-3]], [[7.0]]], 2, -3),
        ("ScatterND", [GRID, [[0, 3]], [7.0]], 3, 3),
        ("Compress", [GRID, [False, False, True]], 2, 2),
    ],
)
def test_known_positions_beyond_an_axis_are_refused_while_tracing(kind, inputs, size, received):
    attributes = {"axis": 0} if kind == "Compress" else {}
    one = Case(kind, inputs, None, attributes)
    given = one.given
    text = f"axis of the size {size} are from {-size} to {size - 1}. Received: {received}"
    with pytest.raises(popart_exception, match=f"In {kind} 'y0': Positions on an {text}$"):
        traced(one.model({"x1": given.pop("x1")}), given)


@pytest.mark.parametrize(
    ("kind", "inputs", "text"),
    [
        ("Slice", [GRID, [0, 0], [1]], r"must be as many\. Received: starts=\[0, 0\], ends=\[1\]"),
        ("GatherElements", [GRID, [0]], r"as many axes .*: shapes \(1,\) and \(2, 3\)"),
        ("ScatterElements", [GRID, [0], [1.0]], r"as many axes .*: shapes \(1,\) and \(2, 3\)"),
        ("GatherND", [GRID, 0], r"last axis of the indices .*: shapes \(\) and \(2, 3\)"),
        ("GatherND", [GRID, [0, 0, 0]], r"last axis of the indices .*: shapes \(3,\) and \(2, 3\)"),
        ("ScatterND", [GRID, [0, 0, 0], 1.0], r"last axis of the indices .* \(3,\) and \(2, 3\)"),
        # XLA would read what is behind.
        ("Gather", [EMPTY, [0]], r"no positions on axis 1, .* shape \(1,\) into \(2, 0\)"),
        ("GatherElements", [EMPTY, [[0]]], r"no positions on axis 1, .* \(1, 1\) into \(2, 0\)"),
        ("GatherND", [EMPTY, [[0, 0]]], r"no positions on axis 1, .* \(1, 2\) into \(2, 0\)"),
        ("GatherElements", [GRID, np.zeros((1, 4), int)], r"all axes but .* \(1, 4\) and \(2, 3\)"),
        (
            "ScatterElements",
            [GRID, np.zeros((1, 4), int), np.ones((1, 4), np.float32)],
            r"all axes but .* \(1, 4\) and \(2, 3\)",
        ),
        ("ScatterElements", [EMPTY, [[0]], [[1.0]]], r"no positions on axis 1, .* into \(2, 0\)"),
        ("ScatterND", [EMPTY, [[0, 0]], [1.0]], r"no positions on axis 1, .* into \(2, 0\)"),
        # TensorFlow would end the process.
        ("ScatterND", [GRID, [[0]], [1.0]], r"shape \(1, 3\), by .* Received: \(1,\)"),
        ("Gather", [GRID, [0.0]], "Positions are integers. Received: float32"),
        ("ScatterND", [GRID, [[0.0]], [GRID[0]]], "Positions are integers. Received: float32"),
        ("ScatterElements", [GRID, [[0]], [1.0]], r"shape \(1, 1\), by .* Received: \(1,\)"),
    ],
)
def test_shapes_that_do_not_belong_together_are_refused(kind, inputs, text):
    attributes = {"axis": 1} if inputs[0] is EMPTY and not kind.endswith("ND") else {}
    with pytest.raises(popart_exception, match=f"In {kind} 'y0': .*{text}"):
        check(Case(kind, inputs, None, attributes))

"""Arrays and callbacks with the inputs and results of steps."""

import numpy as np
import pytest

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.sessions.step_io import PyStepIO, PyStepIOCallback, PyWeightsIO, Stream


def stream(name="x", shape=(2,), dtype="float32", count=(3,)):
    return Stream(name, shape, np.dtype(dtype), count)


def test_inputs_are_read_in_c_order():
    array = np.arange(12, dtype="float32").reshape(2, 6)
    [read] = PyStepIO({"x": array}, {})._read([stream(count=(3, 2))])
    np.testing.assert_array_equal(read, array.reshape(6, 2))


def test_results_are_written_in_place():
    array = np.empty((3, 2), np.float32)
    values = np.arange(6, dtype="float32").reshape(3, 2)
    PyStepIO({}, {"x": array})._write([(stream(), values)])
    np.testing.assert_array_equal(array, values)


def test_scalars_and_empty_arrays():
    scalar, empty = np.float32(3), np.empty((0, 4), np.float32)
    step_io = PyStepIO({"x": scalar, "y": empty}, {"x": np.empty((), np.float32)})
    read = step_io._read([stream(shape=(), count=()), stream("y", (0, 4), count=())])
    assert [each.shape for each in read] == [(1,), (1, 0, 4)]
    step_io._write([(stream(shape=(), count=()), np.float32([5]))])


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (
            np.empty(5, np.float32),
            "Unexpected number of input elements for Tensor x. Expected 6, but received 5.",
        ),
        (
            np.empty(6, np.float64),
            "Type discrepency for tensor x. User provided : float64 and expected : float32",
        ),
    ],
)
def test_arrays_that_do_not_fit(array, text):
    with pytest.raises(popart_exception) as error:
        PyStepIO({"x": array}, {})._check([stream()], [])
    assert text in str(error.value)
    with pytest.raises(popart_exception) as error:
        PyStepIO({}, {"x": array})._check([], [stream()])
    assert text.replace("input", "output") in str(error.value)


def test_one_micro_batch_is_counted():
    with pytest.raises(popart_exception, match=r"A step has 1 micro-batches .* shape \[2\]"):
        PyStepIO({"x": np.empty(5, np.float32)}, {})._check([stream(shape=(2,), count=())], [])


def test_arrays_that_are_missing():
    with pytest.raises(popart_exception, match="no array for tensor x in the inputs"):
        PyStepIO({"y": np.empty(1)}, {})._check([stream()], [])
    with pytest.raises(popart_exception, match="no array for tensor x in the outputs"):
        PyStepIO({}, {})._check([], [stream()])


def test_without_checks_arrays_are_read_on_and_wrap_around():
    array = np.arange(5, dtype="float32")
    step_io = PyStepIO({"x": array}, {"x": array.copy()})
    step_io.enableRuntimeAsserts(False)
    taken = [step_io._read([stream(shape=(), count=(3,))])[0].tolist() for _ in range(3)]
    assert taken == [[0, 1, 2], [3, 4, 0], [1, 2, 3]]


def test_without_checks_results_are_written_on():
    array = np.zeros(4, np.float32)
    step_io = PyStepIO({}, {"x": array})
    step_io.enableRuntimeAsserts(False)
    for value in (1, 2):
        step_io._write([(stream(shape=(), count=(3,)), np.full(3, value, np.float32))])
    assert array.tolist() == [2, 2, 1, 2]


def test_long_integers_are_narrowed():
    wide = np.array([1, -2, 3])
    [read] = PyStepIO({"x": wide}, {})._read([stream(shape=(), dtype="int32")])
    assert read.dtype == np.int32
    assert read.tolist() == [1, -2, 3]
    with pytest.raises(popart_exception, match="values from 1 to 2147483648"):
        PyStepIO({"x": np.array([1, 2, 2**31])}, {})._read([stream(shape=(), dtype="int32")])


@pytest.mark.parametrize(
    "make",
    [
        lambda array: PyStepIO({"x": array}, {}),
        lambda array: PyStepIO({}, {"x": array}),
        lambda array: PyWeightsIO({"x": array}),
    ],
)
def test_arrays_have_to_be_contiguous(make):
    with pytest.raises(popart_exception, match="tensor x as it is not c-contiguous"):
        make(np.zeros((4, 4), np.float32).T[1:])
    with pytest.raises(TypeError, match=r"needs NumPy arrays\. Received: list for 'x'"):
        make([1.0])


def test_what_is_no_dictionary_of_arrays():
    with pytest.raises(TypeError, match=r"^`inputs` must be a dictionary of arrays by name of ten"):
        PyStepIO(None, {})
    with pytest.raises(TypeError, match=r"^`outputs` must be a dictionary .* Received: outputs=\["):
        PyStepIO({}, [np.zeros(2)])


def test_bytes_in_another_order_are_no_other_type():
    text = r"User provided : float32 as '>f4' and expected : float32\. .*`\.astype\('float32'\)`"
    array = np.zeros(6, ">f4")
    with pytest.raises(popart_exception, match=text):
        PyStepIO({"x": array}, {})._check([stream()], [])
    PyStepIO({"x": array.astype("float32")}, {})._check([stream()], [])


def test_what_cannot_be_written_to_is_refused_before_anything_runs():
    array = np.zeros(6, np.float32)
    array.setflags(write=False)
    text = r"The array for tensor x cannot be written to: it is read-only"
    with pytest.raises(popart_exception, match=text):
        PyStepIO({}, {"x": array})._check([], [stream()])
    with pytest.raises(popart_exception, match=text):
        PyStepIOCallback(print, print, lambda name: array, print)._write([(stream(), array)])
    PyStepIO({"x": array}, {})._check([stream()], [])


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_of_a_subclass_only_the_memory_counts():
    matrix = np.matrix(np.arange(6, dtype="float32").reshape(3, 2))
    step_io = PyStepIO({"x": matrix}, {"x": matrix})
    [read] = step_io._read([stream()])
    assert type(read) is np.ndarray
    np.testing.assert_array_equal(read, np.arange(6).reshape(3, 2))
    step_io._write([(stream(), -read)])
    assert matrix.tolist() == [[0, -1], [-2, -3], [-4, -5]]
    one = stream(shape=(3, 2), count=())
    callbacks = PyStepIOCallback(
        lambda *_: matrix, lambda _: None, lambda _: matrix, lambda _: None
    )
    np.testing.assert_array_equal(callbacks._read([one])[0], [matrix])
    callbacks._write([(one, np.ones((3, 2), np.float32))])
    assert (matrix == 1).all()


def test_callbacks_can_be_called():
    with pytest.raises(TypeError, match=r"^A PyStepIOCallback needs functions\. Received: None"):
        PyStepIOCallback(print, print, None, print)


def test_callbacks_in_turn():
    calls, batches = [], iter(np.arange(4, dtype="float32").reshape(4, 1))
    results = [np.empty((2,), np.float32) for _ in range(3)]
    handed = iter(results)

    def give(name, is_prefetch):
        calls.append(("in", name, is_prefetch))
        return next(batches)

    step_io = PyStepIOCallback(
        give,
        lambda name: calls.append(("read", name)),
        lambda name: next(handed),
        lambda name: calls.append(("written", name)),
    )
    x, y = (stream(name, (1,), count=(2,)) for name in "xy")
    read = step_io._read([x, y])
    assert [each.ravel().tolist() for each in read] == [[0, 2], [1, 3]]
    step = [("in", "x", False), ("read", "x"), ("in", "y", False), ("read", "y")]
    assert calls == step * 2
    calls.clear()
    step_io._write([(stream("z"), np.arange(6, dtype="float32").reshape(3, 2))])
    assert [each.tolist() for each in results] == [[0, 1], [2, 3], [4, 5]]
    assert calls == [("written", "z")] * 3


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, "The callback for the input x must return an array. Received: NoneType"),
        (np.zeros(3, np.float32), "Expected 2, but received 3"),
        (np.zeros(2, np.float16), "User provided : float16 and expected : float32"),
    ],
)
def test_bad_results_of_callbacks(given, text):
    step_io = PyStepIOCallback(lambda *_: given, print, print, print)
    with pytest.raises(popart_exception) as error:
        step_io._read([stream()])
    assert text in str(error.value)

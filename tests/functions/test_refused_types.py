"""Which data types functions for `strategy.run` take, read and return: all that TensorFlow has."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from in_sessions import compiled, opened

from ipu_keras import loops
from ipu_keras.config import IPUConfig
from ipu_keras.cost.tile.vertex_rates import ELEMENTS
from ipu_keras.device import device_for
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.program.data_types import FEED_DTYPES, IPU_DTYPES

REASONS = {
    "bfloat16": "IPUs have no bfloat16: their floating point numbers of 16 bits are float16; cast",
    "complex128": "IPUs have no complex numbers; use a tensor of real and one of imaginary parts",
    "complex64": "IPUs have no complex numbers; use a tensor of real and one of imaginary parts",
    "float64": "IPUs compute in float32 and float16; cast it, for instance to tf.float32",
    "int64": "IPUs compute with integers of up to 32 bits; cast it, for instance to tf.int32",
    "string": "IPUs have no strings; use numbers",
    "uint64": "IPUs compute with integers of up to 32 bits; cast it, for instance to tf.uint32",
}
DTYPES = st.sampled_from([*IPU_DTYPES, *REASONS])
STRUCTURES = st.sampled_from([lambda x: x, lambda x: {"x": [None, x]}, lambda x: (x, (x,))])


@pytest.fixture(scope="module")
def strategy():
    SYSTEM.reset()
    IPUConfig().configure_ipu_system()
    yield IPUStrategy()
    SYSTEM.reset()


def check(dtype, what, call):
    """A call works, or is refused before anything runs, as an IPU has a type or not."""
    device = device_for(0)
    device.reset_counters()
    if dtype in IPU_DTYPES:
        assert {x.dtype.name for x in tf.nest.flatten(call()) if x is not None} == {dtype}
        return
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == f"Unsupported data type for {what}: {dtype}"
    (note,) = caught.value.__notes__
    assert note.startswith(REASONS[dtype])
    assert " Received: " in note
    assert device.counters().num_function_calls == 0


def test_the_types_are_those_that_the_cost_model_finds_native():
    assert set(IPU_DTYPES) == {name for name, element in ELEMENTS.items() if element.is_native}
    assert set(FEED_DTYPES) <= set(IPU_DTYPES)


def test_gradients_of_branches_take_what_these_have_computed(strategy):
    """The index of the largest element is of 64 bits, and is handed to the gradient."""

    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = tf.cond(x[0] > 0, lambda: tf.gather(x, tf.argmax(x)) ** 2, lambda: x[0])
        return tape.gradient(found, x)

    gradient = tf.convert_to_tensor(strategy.run(run, [tf.constant([1.0, 3.0, 2.0])]))
    np.testing.assert_array_equal(gradient, [0, 6, 0])


@settings(max_examples=40, deadline=None)
@given(dtype=DTYPES, structure=STRUCTURES, jit_compile=st.sampled_from([None, True]))
def test_inputs(strategy, dtype, structure, jit_compile):
    function = tf.function(lambda x: x, jit_compile=jit_compile)
    value = structure(tf.zeros([2], dtype))
    check(dtype, "input", lambda: strategy.run(function, [value]))
    check(dtype, "input", lambda: strategy.run(function, kwargs={"x": value}))


@settings(max_examples=40, deadline=None)
@given(dtype=DTYPES, structure=STRUCTURES, jit_compile=st.sampled_from([None, True]))
def test_outputs(strategy, dtype, structure, jit_compile):
    function = tf.function(lambda: structure(tf.zeros([2], dtype)), jit_compile=jit_compile)
    check(dtype, "output", lambda: strategy.run(function))


@settings(max_examples=40, deadline=None)
@given(dtype=DTYPES, structure=STRUCTURES, captured=st.booleans())
def test_elements_of_datasets(strategy, dtype, structure, captured):
    element = structure(tf.zeros([2], dtype))
    leaves = [x for x in tf.nest.flatten(element) if x is not None]
    iterator = iter(tf.data.Dataset.from_tensors(tuple(leaves)))

    def call():
        if captured:
            return strategy.run(tf.function(lambda: next(iterator)))
        return strategy.run(tf.function(lambda it: next(it)), [iterator])

    # What a captured dataset gives is known as what the function returns, too.
    if captured and dtype not in IPU_DTYPES:
        with pytest.raises(TypeError, match=f"^Unsupported data type for output: {dtype}"):
            call()
    else:
        check(dtype, "input", call)


def test_a_captured_dataset_whose_elements_are_cast(strategy):
    iterator = iter(tf.data.Dataset.range(3))
    function = tf.function(lambda: tf.cast(next(iterator), tf.int32))
    with pytest.raises(TypeError, match=r"^Unsupported data type for input: int64\n.*IteratorGet"):
        strategy.run(function)
    assert next(iterator).numpy() == 0


@pytest.mark.parametrize("value", [np.array(["a"]), np.arange(3), np.complex128(1)], ids=str)
def test_arrays(strategy, value):
    with pytest.raises(TypeError, match=r"^Unsupported data type for input: .*\n.* args\[0\] is "):
        strategy.run(tf.function(lambda x: x), [value])


def test_constants_of_python_are_no_tensors(strategy):
    function = tf.function(lambda x, name, count: x * count if name == "scale" else x)
    assert strategy.run(function, [tf.constant(2.0), "scale", 3]).numpy() == 6


def test_bfloat16_within_a_function(strategy):
    function = tf.function(lambda x: tf.cast(tf.cast(x, tf.bfloat16), tf.float32))
    with pytest.raises(TypeError, match=r"^Unsupported data type for operation: bfloat16\nIPUs "):
        strategy.run(function, [tf.constant(2.0)])
    # What an IPU computes otherwise is its compiler's.
    widened = tf.function(lambda x: tf.cast(tf.cast(x, tf.float64), tf.float32))
    assert strategy.run(widened, [tf.constant(2.0)]).numpy() == 2


@pytest.mark.parametrize("in_loop", [False, True])
def test_bfloat16_within_a_computation_of_a_session(strategy, in_loop):
    def halved(x):
        return tf.cast(tf.cast(x, tf.bfloat16) / 2, tf.float32)

    with tf.Graph().as_default():
        run = compiled(
            (lambda x: loops.repeat(2, halved, [x])) if in_loop else halved, [tf.constant(1.0)]
        )
        with opened() as session, pytest.raises(TypeError) as error:
            session.run(run)
    assert str(error.value) == "Unsupported data type for operation: bfloat16"
    [note] = error.value.__notes__
    assert "for instance to tf.float16, or to tf.float32" in note

"""What the host runs for a program: every construct computes the same.

Which constructs a program may be given is the compiler's business; each that it
ranks anywhere for a kind of program is tested on programs of that kind.
"""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf
from host_programs import (
    ALL,
    ANY_PROGRAM,
    LAST,
    MANY,
    PROGRAM_WITH_STATE,
    X,
    assert_same,
    build_as,
    cases,
    feeds_of,
    make_program,
    step_by_step,
)

from ipu_keras.host import host_program as host
from ipu_keras.host.plan import HostExecution
from ipu_keras.ir import TensorSpec

Pair = collections.namedtuple("Pair", "first second")


def test_every_execution_is_ranked_for_some_program():
    in_cases = {case.values[0] for case in cases(stateful=False) + cases(stateful=True)}
    assert in_cases == set(HostExecution)


def structure_of_everything(element):
    """Nested results of several dtypes and ranks."""
    x, more = element
    return {
        "z": x * 2.0,
        "a": (tf.reduce_sum(x), Pair(more["y"] + 1, more["flag"])),
        "half": tf.cast(x, tf.float16),
        "positive": tf.reduce_all(x >= 0),
        "constant": tf.constant([7, 8]),
        "list": [tf.cast(more["y"], tf.uint8)],
    }


@ANY_PROGRAM
def test_structures(device, execution, mode, repeat_count):
    program = make_program(
        structure_of_everything,
        infeed=(X, TensorSpec((4,), "int32"), TensorSpec((), "bool")),
        unflatten=lambda tensors: (tensors[0], {"y": tensors[1], "flag": tensors[2]}),
        outfeed_mode=mode,
        repeat_count=repeat_count,
    )
    feeds = feeds_of(program)
    assert_same(build_as(execution, program, device)(feeds), step_by_step(program, feeds))


@ANY_PROGRAM
def test_an_element_with_none_leaves(device, execution, mode, repeat_count):
    def step(element):
        x, nothing, more = element
        assert nothing is None
        assert more == {"mask": None}
        return x + 1.0

    program = make_program(
        step,
        unflatten=lambda tensors: (tensors[0], None, {"mask": None}),
        outfeed_mode=mode,
        repeat_count=repeat_count,
    )
    feeds = feeds_of(program)
    assert_same(build_as(execution, program, device)(feeds), step_by_step(program, feeds))


@ANY_PROGRAM
def test_reading_variables(device, execution, mode, repeat_count):
    weights = tf.Variable(tf.reshape(tf.range(6.0), (3, 2)))
    program = make_program(
        lambda x: tf.nn.relu(x @ weights - 1.0), outfeed_mode=mode, repeat_count=repeat_count
    )
    call = build_as(execution, program, device)
    for seed in range(2):
        feeds = feeds_of(program, seed)
        assert_same(call(feeds), step_by_step(program, feeds))
        weights.assign(weights + 1.0)  # seen by the next execution


@ANY_PROGRAM
def test_random_numbers_of_a_seed(device, execution, mode, repeat_count):
    def step(seed):
        return tf.random.stateless_uniform((5, 7), seed)

    program = make_program(
        step, (TensorSpec((2,), "int32"),), outfeed_mode=mode, repeat_count=repeat_count
    )
    feeds = feeds_of(program)
    result = build_as(execution, program, device)(feeds)
    np.testing.assert_array_equal(result, step_by_step(program, feeds))


@ANY_PROGRAM
def test_a_program_without_inputs(device, execution, mode, repeat_count):
    program = make_program(
        lambda element: tf.ones((2,)),
        infeed=(),
        unflatten=lambda tensors: (),
        outfeed_mode=mode,
        repeat_count=repeat_count,
    )
    assert_same(build_as(execution, program, device)([]), step_by_step(program, []))


@PROGRAM_WITH_STATE
def test_state_is_carried_from_step_to_step(device, execution, mode, repeat_count):
    counter = tf.Variable(0)
    total = tf.Variable(tf.zeros((4, 3)))

    def step(x):
        before = tf.identity(counter)
        counter.assign_add(1)
        total.assign(total * 2.0 + x)
        return {"before": before, "after": counter.read_value(), "total": total.read_value()}

    program = make_program(step, outfeed_mode=mode, repeat_count=repeat_count)
    call = build_as(execution, program, device)
    results = [call(feeds_of(program, seed)) for seed in range(3)]
    assert counter.numpy() == 3 * repeat_count

    counter.assign(0)
    total.assign(tf.zeros((4, 3)))
    for seed, result in enumerate(results):
        assert_same(result, step_by_step(program, feeds_of(program, seed)))


@PROGRAM_WITH_STATE
def test_a_program_without_results(device, execution, mode, repeat_count):
    counter = tf.Variable(0)

    def step(x):
        counter.assign_add(1)
        return ()

    program = make_program(step, outfeed_mode=mode, repeat_count=repeat_count)
    assert build_as(execution, program, device)(feeds_of(program)) == ()
    assert counter.numpy() == repeat_count


@PROGRAM_WITH_STATE
def test_training(device, execution, mode, repeat_count):
    weights = tf.Variable(tf.ones((3, 2)))

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.tanh(x @ weights) ** 2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    program = make_program(step, outfeed_mode=mode, repeat_count=repeat_count)
    feeds = feeds_of(program)
    losses = build_as(execution, program, device)(feeds)
    trained = weights.numpy()
    weights.assign(tf.ones((3, 2)))
    np.testing.assert_allclose(losses, step_by_step(program, feeds), rtol=1e-5)
    np.testing.assert_allclose(trained, weights, rtol=1e-5)


@pytest.mark.parametrize("compiled", [None, True, False])
@pytest.mark.parametrize(("mode", "repeat_count"), [(ALL, 3), (LAST, 1), (LAST, 3), (LAST, MANY)])
def test_a_step_in_two_parts(device, compiled, mode, repeat_count):
    """Products of all steps at once, their sums in turn."""
    weights = tf.Variable(tf.reshape(tf.range(6.0), (3, 2)))
    total = tf.Variable(tf.zeros((4, 2)))

    def step(x):
        outputs = tf.nn.relu(x @ weights)
        total.assign(total * 0.5 + outputs)
        return {"total": total.read_value(), "outputs": outputs, "x": x}

    program = make_program(step, outfeed_mode=mode, repeat_count=repeat_count, compiled=compiled)
    executable = host.build(program, device)
    assert executable.host.execution is not HostExecution.GRAPH_LOOP or repeat_count == 1
    feeds = feeds_of(program)
    received = executable.host(feeds)
    after = total.numpy()
    total.assign(tf.zeros((4, 2)))
    assert_same(received, step_by_step(program, feeds))
    np.testing.assert_allclose(after, total, rtol=1e-6)


@pytest.mark.parametrize("compiled", [None, False])
def test_an_unknown_shape_between_two_parts(device, compiled):
    """What is found differs in size from step to step, so it is not kept for all."""
    total = tf.Variable(0.0)

    def step(x):
        found = tf.boolean_mask(x @ tf.ones((3, 3)), x > 1.0)
        total.assign_add(tf.reduce_sum(found))
        return total.read_value()

    program = make_program(step, repeat_count=3, compiled=compiled)
    feeds = feeds_of(program)
    received = host.build(program, device).host(feeds)
    total.assign(0.0)
    assert_same(received, step_by_step(program, feeds))


@PROGRAM_WITH_STATE
def test_dropout(device, execution, mode, repeat_count):
    def masks():
        layer = keras.layers.Dropout(0.4, seed=11)
        layer.build((4, 3))
        return make_program(
            lambda x: layer(tf.ones_like(x), training=True),
            outfeed_mode=mode,
            repeat_count=repeat_count,
        )

    program = masks()
    feeds = feeds_of(program)
    np.testing.assert_array_equal(
        build_as(execution, program, device)(feeds), step_by_step(masks(), feeds)
    )


@ANY_PROGRAM
def test_a_result_of_unknown_shape(device, execution, mode, repeat_count):
    program = make_program(
        lambda x: {"found": tf.where(x > 0)}, outfeed_mode=mode, repeat_count=repeat_count
    )
    with pytest.raises(ValueError) as error:
        build_as(execution, program, device)(feeds_of(program))
    assert str(error.value).startswith(
        "A result of program 'work' has the shape (None, 2), which is not fully defined. IPU "
        "programs are static: "
    )
    assert "Received: " in str(error.value)

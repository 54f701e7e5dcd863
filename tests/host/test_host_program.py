"""How programs are built, and run through their device."""

import re

import pytest
import tensorflow as tf
from host_programs import (
    ANY_PROGRAM,
    assert_same,
    build_as,
    feeds_of,
    make_program,
    step_by_step,
)

from ipu_keras.host import host_program as host
from ipu_keras.host.plan import HostExecution
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.system import SYSTEM
from ipu_keras.tracing.hlo import hlo_graph

IPU = "/job:localhost/replica:0/task:0/device:IPU:0"


# -- building ------------------------------------------------------------------


def test_an_executable(device):
    program = make_program(lambda x: tf.nn.relu(x))
    executable = host.build(program, device)
    assert executable.program is program
    assert executable.reason
    assert "Relu" in {op.kind for op in executable.graph.walk()}
    assert executable.host.execution in HostExecution


def test_an_executable_knows_what_step_and_update_read(device):
    kernel = tf.Variable(tf.ones((3, 2)))
    bias = tf.Variable(tf.zeros((2,)))
    momentum = tf.Variable(tf.zeros((3, 2), tf.float16))

    def step(x):
        return x @ kernel + bias, [tf.transpose(x) @ tf.ones((4, 2))]

    def update(gradients):
        momentum.assign_add(tf.cast(gradients[0], tf.float16))
        kernel.assign_sub(tf.cast(momentum, tf.float32))

    program = make_program(step, update=update)
    of_step = [TensorSpec((3, 2), "float32"), TensorSpec((2,), "float32")]
    of_update = TensorSpec((3, 2), "float16")
    assert sorted(host.build(program, device).variables, key=str) == sorted(
        [*of_step, of_update], key=str
    )
    alone = host.build(make_program(lambda x: step(x)[0]), device)
    assert sorted(alone.variables, key=str) == sorted(of_step, key=str)


def test_an_executable_has_a_trace_of_what_the_user_wrote(device):
    images = TensorSpec((1, 4, 4, 1), "float32")

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            pooled = tf.nn.max_pool2d(x, 2, 2, "VALID")
        return tape.gradient(pooled, x)

    def kinds(graph):
        return [op.type for op in graph.get_operations()]

    plain = host.build(make_program(tf.nn.relu), device)
    assert "Relu" in kinds(plain.as_written().graph)
    # The host calls a function that compares, an IPU would not.
    pooling = host.build(make_program(gradient, (images,)), device)
    written = pooling.as_written()
    assert "PartitionedCall" in kinds(pooling.host._step.function.graph)
    defined = [node.op for node in written.function_def.node_def]
    assert defined.count("MaxPoolGrad") == 1
    assert "PartitionedCall" not in defined
    as_traced = tf.function(gradient).get_concrete_function(tf.TensorSpec(images.shape))
    assert hlo_graph(written).kinds == hlo_graph(as_traced).kinds
    assert host.build(make_program(tf.nn.relu, compiled=False), device).as_written() is None


def test_an_executable_runs_in_the_engine(device):
    program = make_program(lambda x: x + 1.0, repeat_count=5)
    executable = host.build(program, device)
    before = device.engine.counters()
    feeds = feeds_of(program)
    assert_same(device.engine.run(executable, feeds), step_by_step(program, feeds))
    after = device.engine.counters()
    assert after.num_executions["work"] - before.num_executions.get("work", 0) == 1
    assert after.num_steps["work"] - before.num_steps.get("work", 0) == 5


def test_tracing_is_done_once(device):
    def step(x):
        traced.append(x)
        return x + 1.0

    traced = []
    program = make_program(step)
    executable = host.build(program, device)
    executable.host(feeds_of(program))
    num_traces = len(traced)
    for seed in range(3):
        executable.host(feeds_of(program, seed))
    assert len(traced) == num_traces


def test_an_error_of_a_later_call_says_where_the_operation_was_made(device):
    factor = tf.Variable(2.0)

    def step(x):
        return tf.debugging.check_numerics(x * factor, "not finite")

    program = make_program(step, compiled=False)
    executable = host.build(program, device)
    feeds = feeds_of(program)
    for _ in range(2):
        assert_same(executable.host(feeds), step_by_step(program, feeds))
    factor.assign(float("inf"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite") as caught:
        executable.host(feeds)
    assert re.search(rf'File "{re.escape(__file__)}", line \d+, in step', caught.value.message)
    factor.assign(0.5)
    assert_same(executable.host(feeds), step_by_step(program, feeds))


def test_a_mistake_in_the_step_is_raised_by_build(device):
    def step(x):
        raise ZeroDivisionError("in the step")

    with pytest.raises(ZeroDivisionError, match="in the step"):
        host.build(make_program(step), device)


def test_shapes_that_do_not_fit_keep_the_text_of_tensorflow(device):
    with pytest.raises(ValueError, match="Dimensions must be equal, but are 3 and 4"):
        host.build(make_program(lambda x: tf.matmul(x, x)), device)


# -- dispatch ------------------------------------------------------------------


@ANY_PROGRAM
def test_programs_are_dispatched_through_the_device(device, execution, mode, repeat_count):
    program = make_program(
        lambda x: {"x": x + 1.0, "sum": tf.reduce_sum(x)},
        outfeed_mode=mode,
        repeat_count=repeat_count,
    )
    call = build_as(execution, program, device)
    for _ in range(3):
        result = call(feeds_of(program))
    assert [tensor.device for tensor in tf.nest.flatten(result)] == [IPU, IPU]
    # One call of one function of that name per execution, and no op besides.
    counters = device.counters()
    ((name, num_executions),) = [
        item for item in counters.program_executions.items() if item[1] and "work" in item[0]
    ]
    assert num_executions == 3
    assert counters.num_function_calls == 3
    assert counters.num_operations == 0
    assert "work" in name


def test_a_program_for_a_device_that_left_the_configuration(device):
    program = make_program(lambda x: x + 1.0)
    executable = host.build(program, device)
    feeds = feeds_of(program)
    executable.host(feeds)
    SYSTEM.reset()
    with pytest.raises(ValueError, match="/device:IPU:0 is not configured"):
        executable.host(feeds)


@pytest.mark.parametrize("compiled", [None, True, False])
def test_what_was_asked_for(device, compiled):
    program = make_program(lambda x: tf.nn.relu(x), compiled=compiled)
    executable = host.build(program, device)
    feeds = feeds_of(program)
    assert_same(executable.host(feeds), step_by_step(program, feeds))
    if compiled is not None:
        assert executable.host.execution.name.startswith("COMPILED") is compiled

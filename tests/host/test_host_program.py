"""What the host runs for a program: every construct computes the same.

Which constructs a program may be given is the compiler's business; each that it
ranks anywhere for a kind of program is tested on programs of that kind.
"""

import collections
import dataclasses
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.device import device_for
from ipu_keras.host import host_program as host
from ipu_keras.host.plan import HostExecution, plan_host
from ipu_keras.ir import Graph, Op, TensorSpec
from ipu_keras.machine.system import SYSTEM
from ipu_keras.program import OutfeedMode, Program
from ipu_keras.tracing import graph_of
from ipu_keras.tracing.hlo import hlo_graph

IPU = "/job:localhost/replica:0/task:0/device:IPU:0"
ALL, LAST = OutfeedMode.ALL, OutfeedMode.LAST
MANY = 66  # more steps than are ever unrolled
X = TensorSpec((4, 3), "float32")
Pair = collections.namedtuple("Pair", "first second")


@pytest.fixture
def device():
    """/device:IPU:0 with fresh counters."""
    SYSTEM.reset()
    IPUConfig().configure_ipu_system()
    device = device_for(0)
    device.reset_counters()
    yield device
    SYSTEM.reset()


def make_program(
    step, infeed=(X,), unflatten=lambda tensors: tensors[0], repeat_count=3, **options
):
    return Program(
        name="work",
        step=step,
        infeed=infeed,
        unflatten=unflatten,
        repeat_count=repeat_count,
        **options,
    )


def build_as(execution, program, device):
    """As `host.build`, with the host's execution given."""

    step = host.trace(program, for_xla=execution.is_compiled)
    plan = dataclasses.replace(plan_host(program, graph_of(step.function)), executions=(execution,))
    return host.HostCallable(plan, step, device)


def feeds_of(program, seed=0):
    """A super-batch for a program: small integers, which all dtypes hold exactly."""
    random = np.random.default_rng(seed)
    return [
        tf.constant(random.integers(0, 5, (program.repeat_count, *spec.shape)).astype(spec.dtype))
        for spec in program.infeed
    ]


def step_by_step(program, feeds):
    """What the outfeed has to be, by calling the step eagerly."""
    elements = [
        program.unflatten(tuple(feed[step] for feed in feeds))
        for step in range(program.repeat_count)
    ]
    results = [program.step(element) for element in elements]
    if program.outfeed_mode is LAST:
        return tf.nest.map_structure(np.asarray, results[-1])
    return tf.nest.map_structure(lambda *values: np.stack(values), *results)


def assert_same(received, expected):
    tf.nest.assert_same_structure(received, expected)
    for ours, theirs in zip(tf.nest.flatten(received), tf.nest.flatten(expected), strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def ranked(mode, repeat_count, *, stateful):
    """The executions that the compiler may give to such a program."""
    found = set()
    for kind, compiled in itertools.product(["MatMul", "Conv2D"], [None, True, False]):
        program = make_program(
            print, repeat_count=repeat_count, outfeed_mode=mode, compiled=compiled
        )
        graph = Graph("step", (Op("compute", kind), Op("write", "Assign", stateful=stateful)))
        found |= set(plan_host(program, graph).executions)
    return sorted(found, key=lambda execution: execution.value)


def cases(*, stateful):
    return [
        pytest.param(
            execution, mode, repeat_count, id=f"{execution.value}-{mode.value}-{repeat_count}"
        )
        for mode, repeat_count in itertools.product([ALL, LAST], [1, 3, MANY])
        for execution in ranked(mode, repeat_count, stateful=stateful)
    ]


ANY_PROGRAM = pytest.mark.parametrize(("execution", "mode", "repeat_count"), cases(stateful=False))
PROGRAM_WITH_STATE = pytest.mark.parametrize(
    ("execution", "mode", "repeat_count"), cases(stateful=True)
)


def test_every_execution_is_ranked_for_some_program():
    in_cases = {case.values[0] for case in cases(stateful=False) + cases(stateful=True)}
    assert in_cases == set(HostExecution)


# -- every construct -----------------------------------------------------------


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


# -- when XLA cannot -----------------------------------------------------------


def lacking_xla(x):
    """An op without a kernel in XLA."""
    digits = tf.strings.as_string(tf.cast(x, tf.int32))
    return tf.cast(tf.strings.to_hash_bucket_fast(digits, 100), tf.int32)


def with_python(x):
    """A Python function, which is stateful."""
    result = tf.py_function(lambda y: y * 2.0, [x], tf.float32)
    return tf.ensure_shape(result, x.shape)


@pytest.mark.parametrize("compiled", [None, True])
@pytest.mark.parametrize("mode", [ALL, LAST])
@pytest.mark.parametrize(
    ("step", "refused"), [(lacking_xla, True), (with_python, False)], ids=["refused", "known"]
)
def test_an_op_that_xla_lacks(device, step, refused, mode, compiled):
    """XLA is asked, unless the operation is one that calls back into this process."""
    program = make_program(step, outfeed_mode=mode, compiled=compiled)
    executable = host.build(program, device)
    for seed in range(2):
        feeds = feeds_of(program, seed)
        assert_same(executable.host(feeds), step_by_step(program, feeds))
    assert not executable.host.execution.is_compiled
    if refused:
        assert "XLA" in executable.host.refusal
    else:
        assert executable.host.refusal is None
        assert executable.reason == "XLA lacks EagerPyFunc"


def recurrent(weights):
    """A training step over a sequence, as a recurrent layer takes it."""

    def step(x):
        inputs = tf.TensorArray(tf.float32, 4).unstack(x)
        with tf.GradientTape() as tape:
            _, state = tf.while_loop(
                lambda k, _: k < 4,
                lambda k, state: [k + 1, tf.nn.tanh((state + inputs.read(k)[None]) @ weights)],
                [0, tf.zeros((1, 3))],
                maximum_iterations=4,
            )
            loss = tf.reduce_sum(state)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    return step


def test_gradients_of_loops_are_compiled(device):
    # XLA needs loops that were traced for it, and a refusal goes unnoticed.
    start = tf.eye(3) * 0.1
    weights = tf.Variable(start)
    program = make_program(recurrent(weights))
    executable = host.build(program, device)
    feeds = feeds_of(program)
    loss = executable.host(feeds)
    assert executable.host.refusal is None
    assert executable.host.execution.name.startswith("COMPILED")

    trained = weights.numpy()
    weights.assign(start)
    np.testing.assert_allclose(loss, step_by_step(program, feeds), rtol=1e-5)
    np.testing.assert_allclose(trained, weights, rtol=1e-5)


def with_branches(x):
    """Control flow, and what XLA lacks."""
    larger = tf.cond(tf.reduce_sum(x) > 20.0, lambda: x * 2.0, lambda: x + 1.0)
    _, doubled = tf.while_loop(
        lambda k, y: tf.reduce_sum(y) < 90.0, lambda k, y: (k + 1, y * 2.0), [0, larger]
    )
    return with_python(doubled)


def test_control_flow_is_traced_again_for_tensorflow(device):
    """What was traced for XLA would run each loop and branch in a kernel that blocks a thread."""
    program = make_program(with_branches)
    executable = host.build(program, device)
    feeds = feeds_of(program)
    assert_same(executable.host(feeds), step_by_step(program, feeds))
    assert not executable.host.execution.is_compiled
    step = executable.host._step.function.graph
    kinds = {"StatelessIf", "StatelessWhile"}
    flow = [op for op in step.get_operations() if op.type in kinds]
    assert len(flow) == 2
    assert all(op.get_attr("_lower_using_switch_merge") for op in flow)


@pytest.mark.parametrize("onednn", [False, True])
@pytest.mark.parametrize(("nested", "num_traces"), [(False, 1), (True, 2)])
def test_draws_are_left_to_tensorflows_executor(device, onednn, nested, num_traces):
    """Traced again only where a function that the step calls draws."""
    traced = []

    def step(x):
        if not tf.executing_eagerly():
            traced.append(x)
        draw = tf.random.stateless_uniform
        if nested:
            draw = tf.function(draw, autograph=False)
        return with_python(x) + draw((4, 3), (1, 2))

    program = make_program(step)
    executable = host.build(program, device, onednn=onednn)
    feeds = feeds_of(program)
    np.testing.assert_array_equal(executable.host(feeds), step_by_step(program, feeds))
    assert len(traced) == num_traces
    graph = executable.host._step.function.graph
    draws = [
        op
        for each in (graph, *(function.graph for function in graph._functions.values()))
        for op in each.get_operations()
        if op.type == "StatelessRandomUniformV2"
    ]
    assert [bool(op.outputs[0].consumers()) for op in draws] == [True]


@pytest.mark.parametrize("compiled", [True, False])
def test_sums_of_products_are_one_product_wherever_they_run(device, compiled):
    """Also where draws are given back to TensorFlow's executor, in the same trace."""
    kernel = tf.Variable([[1.0, -2.0], [0.5, 3.0], [2.0, 1.0]])

    def step(x):
        kept = x * tf.random.stateless_uniform((4, 3), (1, 2))
        with tf.GradientTape() as tape:
            outputs = tf.reshape(kept, (2, 2, 3)) @ kernel
            loss = tf.reduce_sum(outputs**2)
        return tape.gradient(loss, kernel) + (0.0 if compiled else tf.reduce_sum(with_python(x)))

    program = make_program(step)
    executable = host.build(program, device)
    feeds = feeds_of(program)
    np.testing.assert_allclose(executable.host(feeds), step_by_step(program, feeds), rtol=1e-5)
    assert executable.host.execution.is_compiled is compiled
    graph = executable.host._step.function.graph
    sums = [op.outputs[0] for op in graph.get_operations() if op.type == "Sum"]
    assert not any(tensor.consumers() for tensor in sums if tensor.shape == kernel.shape)
    assert "MatMul" in {op.type for op in graph.get_operations()}


def test_a_step_that_xla_refused_has_not_run(device):
    counter = tf.Variable(0)

    def step(x):
        counter.assign_add(1)
        return lacking_xla(x)

    program = make_program(step)
    host.build(program, device).host(feeds_of(program))
    assert counter.numpy() == program.repeat_count


def test_what_python_raised_in_a_step(device):
    def broken(x):
        raise ValueError("no such word")

    program = make_program(
        lambda x: tf.ensure_shape(tf.py_function(broken, [x], tf.float32), x.shape)
    )
    executable = host.build(program, device)
    for _ in range(2):
        with pytest.raises(tf.errors.OpError, match="ValueError: no such word"):
            executable.host(feeds_of(program))


@pytest.mark.parametrize("fails_at", [0, 2])
def test_errors_of_ops_keep_type_and_text(device, fails_at):
    # Only the first execution may be repeated in another construct.
    def step(x):
        tf.debugging.assert_less(x, 100.0, message="too large for us")
        return with_python(x)

    program = make_program(step, compiled=None)
    executable = host.build(program, device)
    (good,) = feeds_of(program)
    for _ in range(fails_at):
        executable.host([good])
    with pytest.raises(tf.errors.InvalidArgumentError, match="too large for us"):
        executable.host([good + 100.0])
    assert_same(executable.host([good]), step_by_step(program, [good]))


def test_errors_of_ops_without_xla(device):
    def step(x):
        tf.debugging.assert_less(x, 100.0, message="too large for us")
        return x * 2.0

    program = make_program(step, compiled=False)
    executable = host.build(program, device)
    (good,) = feeds_of(program)
    with pytest.raises(tf.errors.InvalidArgumentError, match="too large for us"):
        executable.host([good + 100.0])
    assert_same(executable.host([good]), step_by_step(program, [good]))


@pytest.mark.parametrize("compiled", [None, True, False])
def test_what_was_asked_for(device, compiled):
    program = make_program(lambda x: tf.nn.relu(x), compiled=compiled)
    executable = host.build(program, device)
    feeds = feeds_of(program)
    assert_same(executable.host(feeds), step_by_step(program, feeds))
    if compiled is not None:
        assert executable.host.execution.name.startswith("COMPILED") is compiled


@pytest.mark.parametrize("fast_math", [False, True])
@pytest.mark.parametrize("compiled", [None, False, True])
def test_fast_math_normalizes_batches_in_one_operation(device, compiled, fast_math):
    """Where TensorFlow runs the step; XLA and the cost model get what Keras writes."""
    with tf.device(device.name):
        convolution = keras.layers.Conv2D(2, 3, use_bias=False)
        layer = keras.layers.BatchNormalization(momentum=0.5)
        convolution.build((2, 6, 6, 1))
        layer.build((2, 4, 4, 2))
    weights = [*convolution.weights, *layer.weights]
    start = [weight.value.numpy() for weight in weights]

    def step(images):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(layer(convolution(images), training=True) - 0.5))
        trained = [*convolution.trainable_weights, *layer.trainable_weights]
        for weight, gradient in zip(trained, tape.gradient(loss, trained), strict=True):
            weight.assign_sub(0.01 * gradient)
        return loss

    spec = TensorSpec((2, 6, 6, 1), "float32")
    program = make_program(step, (spec,), compiled=compiled, fast_math=fast_math)
    executable = host.build(program, device)
    images = np.random.default_rng(0).normal(size=(3, *spec.shape)).astype(np.float32)
    loss = executable.host([tf.constant(images)])
    found = [weight.value.numpy() for weight in weights]
    ran = [op.kind for op in graph_of(executable.host._step.function).walk()]
    is_fused = fast_math and not compiled
    assert ran.count("FusedBatchNormV3") == ran.count("FusedBatchNormGradV3") == is_fused
    if compiled is not False:
        assert "FusedBatchNormV3" not in executable.graph.kinds
        written = {node.op for node in executable.as_written().function_def.node_def}
        assert "FusedBatchNormV3" not in written
        assert "Rsqrt" in written

    for weight, value in zip(weights, start, strict=True):
        weight.assign(value)
    expected = [step(tf.constant(batch)) for batch in images]
    np.testing.assert_allclose(loss, expected[-1], rtol=1e-4)
    for one, other in zip(found, weights, strict=True):
        np.testing.assert_allclose(one, other.value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("onednn", [False, True])
@pytest.mark.parametrize("compiled", [None, False])
def test_gradients_of_pooling_are_left_to_onednn(device, compiled, onednn):
    """Whichever way TensorFlow's executor gets the trace: made for XLA at first, or not."""
    generator = np.random.default_rng(0)
    start = generator.normal(size=(3, 3, 1, 2)).astype(np.float32)
    with tf.device(device.name):
        filters = tf.Variable(start)

    def step(images):
        with tf.GradientTape() as tape:
            pooled = tf.nn.max_pool2d(tf.nn.conv2d(images, filters, 1, "VALID"), 2, 2, "VALID")
            loss = tf.reduce_sum(tf.square(pooled))
        filters.assign_sub(0.01 * tape.gradient(loss, filters))
        return loss

    spec = TensorSpec((2, 6, 6, 1), "float32")
    program = make_program(step, (spec,), compiled=compiled)
    executable = host.build(program, device, onednn=onednn)
    images = generator.normal(size=(3, *spec.shape)).astype(np.float32)
    loss = executable.host([tf.constant(images)])
    replaces = "PartitionedCall" in {op.kind for op in graph_of(executable.host._step.function).ops}
    assert replaces is not onednn
    filters.assign(start)
    expected = [step(tf.constant(batch)) for batch in images]
    np.testing.assert_allclose(loss, expected[-1], rtol=1e-5)

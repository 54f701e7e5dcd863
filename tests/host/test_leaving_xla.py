"""Programs that XLA cannot compile, or that TensorFlow's executor runs for another reason."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from host_programs import (
    ALL,
    LAST,
    assert_same,
    feeds_of,
    make_program,
    step_by_step,
)

from ipu_keras.host import host_program as host
from ipu_keras.ir import TensorSpec
from ipu_keras.program import Accumulation
from ipu_keras.tracing import graph_of


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


@pytest.mark.parametrize("updates", [False, True])
def test_parts_that_ran_before_xla_refused_another_are_undone(device, updates):
    """All steps count first, in a program of its own: as generators of dropout do."""
    weights = tf.Variable(tf.ones((3, 3)))
    count = tf.Variable(0)

    def step(x):
        number = tf.cast(count.assign_add(1), tf.float32)
        product = tf.matmul(x * number, weights)
        outputs = lacking_xla(product), number
        return (outputs, [tf.reduce_sum(product) * tf.ones((3, 3))]) if updates else outputs

    def update(gradients):
        weights.assign_add(0.001 * gradients[0])

    program = make_program(step, outfeed_mode=ALL, update=update if updates else None)
    executable = host.build(program, device)
    feeds = [tf.ones((3, 4, 3))]
    _, numbers = executable.host(feeds)
    assert "XLA" in executable.host.refusal
    np.testing.assert_array_equal(numbers, [1, 2, 3])
    assert count.numpy() == 3
    assert tf.reduce_all(weights == 1.0) != updates
    executable.host(feeds)
    assert count.numpy() == 6


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


def test_updates_with_replaced_operations_are_traced_once(device):
    """What was replaced in the update for XLA, such as its second root, is undone in its trace."""
    weight, traced = tf.Variable(1.0), []

    def step(x):
        traced.append("step")
        return tf.reduce_sum(x), [tf.reduce_sum(x) * weight]

    def update(gradients):
        traced.append("update")
        rates = tf.sqrt(weight) + tf.sqrt(weight)
        weight.assign_sub(rates * gradients[0] / 100.0)

    program = make_program(
        step, update=update, accumulation=Accumulation(count=3), first_steps=32, repeat_count=3
    )
    executable = host.build(program, device)
    feeds = feeds_of(program)
    executable.host(feeds)
    assert traced == ["step", "update"]
    np.testing.assert_allclose(weight, 1.0 - 2.0 * np.sum(feeds[0]) / 100.0, rtol=1e-6)

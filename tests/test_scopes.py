"""Scopes of operations: their attributes, what they change in reports, and that numbers stay."""

import contextlib
import doctest
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import last_report, loops, scopes
from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.ipu_compiler import compile as compile_computation
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops import cross_replica_ops
from ipu_keras.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipu_keras.optimizers.sharded_optimizer import ShardedOptimizer
from ipu_keras.pipelining_ops import pipeline
from ipu_keras.sharding import shard_of
from ipu_keras.tracing.frontend_attributes import attributes_of

v1 = tf.compat.v1
IPU = "/device:IPU:0"


@pytest.fixture(autouse=True)
def _configured():
    reset_ipu_configuration()
    yield
    reset_ipu_configuration()


def configure(num_ipus=1):
    config = IPUConfig()
    config.auto_select_ipus = num_ipus
    config.configure_ipu_system()


def test_examples():
    assert doctest.testmod(scopes).failed == 0


def added(x=1.0):
    """A new operation of the graph that is being built."""
    return tf.add(x, 1.0).op


# Attributes.


def test_shards_of_graphs():
    with tf.Graph().as_default():
        with scopes.ipu_shard(1):
            outer = added()
            with scopes.ipu_shard(np.int32(2)):
                inner = added()
            again = added()
        spread = None
        with scopes.ipu_shard([3, 0]):
            spread = added()
        after = added()
    assert [shard_of(op) for op in (outer, inner, again, spread, after)] == [1, 2, 1, 3, None]
    # As XLA's message has it: on one device, of the number 2.
    assert inner.get_attr("_XlaSharding") == b"\x08\x01\x1a\x01\x01\x22\x01\x02"


def test_shards_of_functions():
    found = []

    @tf.function
    def step(x):
        with scopes.ipu_shard(1), scopes.frontend_attribute("a", "b"):
            found.append(added(x))
        with scopes.ipu_shard(range(2, 4)):
            found.append(added(x))
        return found[-1].outputs[0]

    step.get_concrete_function(tf.TensorSpec([2]))
    assert [shard_of(op) for op in found] == [1, 2]
    assert attributes_of(found[0]) == {"IPU_SHARD": "1", "a": "b"}
    # With XLA's own attribute it would refuse to compile a part of a function.
    assert "_XlaSharding" not in found[0].node_def.attr


@pytest.mark.parametrize("index", [-1, 64, True, 1.5, "0", None, [], [0, -1], np.array(2.0)])
def test_no_such_shard(index):
    text = re.escape("`index` must be the number of an IPU, from 0 to 63, or a list of such")
    with pytest.raises(ValueError, match=text), scopes.ipu_shard(index):
        pass


def test_eagerly_nothing_changes():
    with (
        scopes.ipu_shard(1),
        scopes.ipu_jit_scope("a"),
        scopes.frontend_attribute("a", "b", "c"),
        scopes.partials_type(np.float16),
        scopes.stochastic_rounding(False),
    ):
        assert float(tf.constant(1.0) + 1.0) == 2.0
    with tf.Graph().as_default():
        assert not attributes_of(added())


def test_frontend_attributes():
    with tf.Graph().as_default():
        with scopes.frontend_attribute("a", "1"):
            with scopes.frontend_attribute("b", "2"), scopes.frontend_attribute("a", "3"):
                inner = added()
            outer = added()
        after = added()
        with scopes.frontend_attribute("c", "4", restore_to="5"):
            with scopes.frontend_attribute("c", "6", restore_to="7"):
                nested = added()
            unnested = added()
        restored = added()
    found = [attributes_of(op) for op in (inner, outer, after, nested, unnested, restored)]
    assert found == [{"a": "3", "b": "2"}, {"a": "1"}, {}, {"c": "6"}, {"c": "4"}, {"c": "5"}]


def test_an_attribute_is_restored_after_an_error():
    with tf.Graph().as_default():
        with pytest.raises(KeyError), scopes.frontend_attribute("a", "1", "0"):
            raise KeyError
        assert attributes_of(added()) == {"a": "0"}


def test_jit_scopes():
    with tf.Graph().as_default():
        with scopes.ipu_jit_scope("one"):
            first = added()
            with scopes.ipu_jit_scope(2):
                second = added()
        after = added()
    assert first.get_attr("_XlaCompile")
    assert [op.get_attr("_XlaScope") for op in (first, second)] == [b"one", b"2"]
    assert "_XlaScope" not in after.node_def.attr


def test_attributes_of_products_and_rounding():
    with tf.Graph().as_default():
        with scopes.partials_type(np.float16), scopes.stochastic_rounding(False):
            half = added()
        with scopes.partials_type(tf.float32):
            single = added()
    assert attributes_of(half) == {"PARTIALS_TYPE": "half", "STOCHASTIC_ROUNDING": "false"}
    assert attributes_of(single) == {"PARTIALS_TYPE": "float", "STOCHASTIC_ROUNDING": "undefined"}


def test_outside_compilation_has_a_name():
    found = []

    @tf.function
    def step(x):
        for _ in range(2):
            with scopes.outside_compilation_scope("host"):
                found.append(added(x))

    step.get_concrete_function(tf.TensorSpec([2]))
    names = [op.get_attr("_xla_outside_compilation").decode() for op in found]
    assert all(re.fullmatch(r"host_\d+", name) for name in names)
    assert names[0] != names[1]


@pytest.mark.parametrize(
    ("scope", "given", "kind", "text"),
    [
        (scopes.ipu_scope, [0], TypeError, "`device` must be the name of a TensorFlow device"),
        (scopes.ipu_scope, ["IPU"], ValueError, "`device` must be the name of a TensorFlow device"),
        (scopes.ipu_jit_scope, [1.0], TypeError, "`ipu_scope` must be a string"),
        (scopes.outside_compilation_scope, [None], TypeError, "`name` must be a string"),
        (scopes.frontend_attribute, [1, "a"], TypeError, "`attribute_name` must be a string"),
        (scopes.frontend_attribute, ["a", 1], TypeError, "`attribute_value` must be a string"),
        (scopes.frontend_attribute, ["a", "b", 1], TypeError, "`restore_to` must be a string"),
        (scopes.stochastic_rounding, ["yes"], TypeError, "`override` must be True or False"),
        (scopes.stochastic_rounding, [1], TypeError, "`override` must be True or False"),
        (scopes.partials_type, ["halves"], TypeError, "`override_type` must be a type"),
        (scopes.partials_type, [None], TypeError, "`override_type` must be a type"),
        (scopes.partials_type, [np.int32], ValueError, "Only support float16, float32"),
    ],
)
def test_bad_arguments(scope, given, kind, text):
    graph = tf.Graph()
    with graph.as_default():
        with pytest.raises(kind, match=re.escape(text)), scope(*given):
            pass
        assert not attributes_of(added())


def test_no_scope_of_the_host_within_another():
    @tf.function
    def step(x):
        with scopes.outside_compilation_scope("a"):
            text = "Illegal nesting of outside_compilation_scope\n.*name='b', within the scope 'a'"
            with pytest.raises(ValueError, match=text), scopes.outside_compilation_scope("b"):
                pass
        with scopes.outside_compilation_scope("c"):
            return x + 1.0

    step.get_concrete_function(tf.TensorSpec([2]))


@pytest.mark.parametrize("in_session", [False, True])
def test_no_scope_of_the_host_without_a_program(in_session):
    where = "in the graph of a session" if in_session else "executed eagerly"
    text = f"outside_compilation_scope is only allowed in XLA context\n.*name='a', {where}"
    with (
        tf.Graph().as_default() if in_session else contextlib.nullcontext(),
        pytest.raises(ValueError, match=text),
        scopes.outside_compilation_scope("a"),
    ):
        pass


# Shards in programs.

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((4, 8)).astype("float32")
W0 = RANDOM.standard_normal((8, 16)).astype("float32")
W1 = RANDOM.standard_normal((16, 4)).astype("float32")


def ipus_of(report):
    """By compute set, the numbers of the IPUs, of products and of values."""
    program = report.model.program
    products = [(one.ipu, one.backward) for one in program.compute_sets if one.family == "dot"]
    variables = {v.name: v.ipu for v in program.values.values() if v.role == "variable"}
    return sorted(products), sorted(variables.values())


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_sharded_function(jit_compile):
    configure(2)
    strategy = IPUStrategy()
    with strategy.scope():
        weights = [tf.Variable(W0), tf.Variable(W1)]

    def forward(x, weights):
        with scopes.ipu_shard(0):
            hidden = tf.nn.relu(x @ weights[0])
        with scopes.ipu_shard(1):
            return tf.reduce_sum(tf.tanh(hidden @ weights[1]) ** 2)

    def train(x, weights):
        with tf.GradientTape() as tape:
            loss = forward(x, weights)
        gradients = tape.gradient(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(0.01 * gradient)
        return loss

    @tf.function(jit_compile=jit_compile)
    def step(x):
        return train(x, weights)

    losses = [float(strategy.run(step, [tf.constant(X)])) for _ in range(3)]
    plain = [tf.Variable(W0), tf.Variable(W1)]
    assert losses == pytest.approx([float(train(X, plain)) for _ in range(3)], rel=1e-5)
    report = last_report()
    assert (report.model.options.num_ipus, report.model.options.num_replicas) == (2, 1)
    products, variables = ipus_of(report)
    # Forward and weight gradients; of what the first layer takes there is no gradient.
    assert products == [(0, False), (0, True), (1, False), (1, True), (1, True)]
    assert variables == [0, 1]
    copies = [one for one in report.model.program.compute_sets if one.family == "inter-IPU copy"]
    # Activations go forward, and their gradient comes back.
    assert [(one.ipu, one.bytes_read) for one in copies] == [(1, 4 * 16 * 4), (0, 4 * 16 * 4)]


def test_shards_of_called_functions_loops_and_branches():
    configure(2)
    strategy = IPUStrategy()

    @tf.function
    def layer(x):
        return tf.sort(x)

    @tf.function
    def step(x):
        with scopes.ipu_shard(0):
            x = layer(x)
        with scopes.ipu_shard(1):
            x = layer(x)
            x = tf.while_loop(lambda x: tf.reduce_sum(x) < 9, lambda x: [tf.sort(x + x)], [x])[0]
            return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sort(x * x), lambda: x)

    strategy.run(step, [tf.ones([8])])
    sets = last_report().model.program.compute_sets
    assert [one.ipu for one in sets if one.family == "sort"] == [0, 1, 1, 1]


BATCHES = RANDOM.standard_normal((6, 4, 8)).astype("float32")


def trained(num_replicas):
    """Losses and weights of one epoch in NumPy; each step learns the gradients of all replicas."""
    weights, losses = [W0.astype("float64"), W1.astype("float64")], []
    for batches in BATCHES.reshape(-1, num_replicas, 4, 8):
        hidden = np.tanh(batches @ weights[0])
        results = np.tanh(hidden @ weights[1])
        losses.append((results**2).sum(axis=(1, 2)))
        backward = 2 * results * (1 - results**2)
        hidden_backward = (backward @ weights[1].T) * (1 - hidden**2)
        weights[0] = weights[0] - 0.01 * np.einsum("rbi,rbo->io", batches, hidden_backward)
        weights[1] = weights[1] - 0.01 * np.einsum("rbi,rbo->io", hidden, backward)
    return np.squeeze(losses), weights


def check_training(losses, weights, num_replicas):
    """What a loop on two shards and so many replicas found, and where its report has it."""
    expected, expected_weights = trained(num_replicas)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for found, one in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-5, atol=1e-6)
    report = last_report()
    assert (report.model.options.num_ipus, report.model.options.num_replicas) == (2, num_replicas)
    products, variables = ipus_of(report)
    assert products == [(0, False), (0, True), (1, False), (1, True), (1, True)]
    assert variables == [0, 1]


@pytest.mark.parametrize("num_ipus", [2, 4])
def test_a_sharded_loop_of_a_session(num_ipus):
    """With 4 IPUs two replicas, each with 2."""
    configure(num_ipus)
    num_replicas = num_ipus // 2
    with tf.Graph().as_default(), v1.Session() as session:
        infeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(BATCHES))
        outfeed = IPUOutfeedQueue()

        def body(x):
            for shard, value in enumerate([W0, W1]):
                with scopes.ipu_shard(shard):
                    initial = tf.constant_initializer(value)
                    weight = v1.get_variable(f"w{shard}", value.shape, initializer=initial)
                    x = tf.tanh(x @ weight)
            loss = tf.reduce_sum(x**2)
            descent = v1.train.GradientDescentOptimizer(0.01 * num_replicas)
            train = CrossReplicaOptimizer(ShardedOptimizer(descent)).minimize(loss)
            with tf.control_dependencies([train]):
                return outfeed.enqueue(loss)

        with scopes.ipu_scope(IPU):
            run = compile_computation(lambda: loops.repeat(6 // num_replicas, body, [], infeed))
        dequeued = outfeed.dequeue()
        session.run([v1.global_variables_initializer(), infeed.initializer])
        session.run(run)
        losses, weights = session.run([dequeued, v1.global_variables()])
        names = [variable.name for variable in v1.global_variables()]
    # Names do not change with scopes: checkpoints know them.
    assert names == ["w0:0", "w1:0"]
    check_training(losses, weights, num_replicas)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_sharded_loop_of_a_function(jit_compile):
    configure(4)
    strategy = IPUStrategy()
    with strategy.scope():
        weights = [tf.Variable(W0), tf.Variable(W1)]
    infeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(BATCHES))
    outfeed = IPUOutfeedQueue()
    _ = infeed.initializer

    def body(x):
        with tf.GradientTape() as tape:
            for shard, weight in enumerate(weights):
                with scopes.ipu_shard(shard):
                    x = tf.tanh(x @ weight)
            loss = tf.reduce_sum(x**2)
        gradients = tape.gradient(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(0.01 * cross_replica_ops.cross_replica_sum(gradient))
        outfeed.enqueue(loss)

    @tf.function(jit_compile=jit_compile)
    def epoch():
        loops.repeat(3, body, [], infeed)

    strategy.run(epoch)
    check_training(outfeed.dequeue(), weights, 2)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_sharded_function_of_replicas(jit_compile):
    configure(4)
    strategy = IPUStrategy()

    @tf.function(jit_compile=jit_compile)
    def step(x):
        with scopes.ipu_shard(1):
            y = tf.sort(x)
        return y, cross_replica_ops.cross_replica_sum(x)

    y, total = strategy.run(step, [tf.constant([2.0, 1.0])])
    assert (y.numpy().tolist(), total.numpy().tolist()) == ([1.0, 2.0], [4.0, 2.0])
    options = last_report().model.options
    assert (options.num_ipus, options.num_replicas) == (2, 2)


def in_a_session(computation):
    with tf.Graph().as_default(), v1.Session() as session:
        with scopes.ipu_scope(IPU):
            result = compile_computation(computation)
        session.run(result)


def in_a_function(computation):
    IPUStrategy().run(tf.function(computation))


@pytest.mark.parametrize("run", [in_a_session, in_a_function])
@pytest.mark.parametrize("in_a_loop", [False, True])
def test_too_few_ipus(run, in_a_loop):
    configure(2)

    def double(x):
        with scopes.ipu_shard(5):
            return x + x

    text = (
        "Current device has 2 IPUs attached, however the current program requires a multiple of 8 "
        "IPUs.(.|\n)*auto_select_ipus = 8(.|\n)*`ipu_shard\\(5\\)`.* the device '.*/device:IPU:0'"
    )
    one = tf.function(double) if in_a_loop else double
    with pytest.raises(ValueError, match=text):
        run(lambda: loops.repeat(2, one, [1.0]) if in_a_loop else one(tf.ones(2)))


def test_values_of_one_replica_with_two_ipus():
    """Outside of loops several replicas exchange nothing, but these IPUs are one."""
    configure(2)

    def computation():
        with scopes.ipu_shard(1):
            return cross_replica_ops.cross_replica_sum(tf.ones(2))

    with tf.Graph().as_default(), v1.Session() as session:
        with scopes.ipu_scope(IPU):
            (found,) = compile_computation(computation)
        assert session.run(found).tolist() == [1.0, 1.0]
    outfeed = IPUOutfeedQueue()

    @tf.function
    def writing():
        with scopes.ipu_shard(1):
            outfeed.enqueue(tf.ones(2))

    IPUStrategy().run(writing)
    assert outfeed.dequeue().numpy().tolist() == [[1.0, 1.0]]


def test_no_shards_of_keras():
    configure(2)

    class Layer(keras.layers.Layer):
        def call(self, x):
            with scopes.ipu_shard(1):
                return 2.0 * x

    with IPUStrategy().scope():
        model = keras.Sequential([keras.Input((3,)), Layer()])
        with pytest.raises(ValueError, match="Replicas of a Keras model have one IPU each"):
            model.predict(np.ones((4, 3)), batch_size=2, verbose=0)


def test_no_shards_of_stages():
    configure(2)
    outfeed = IPUOutfeedQueue()

    def stage(x):
        with scopes.ipu_shard(1):
            return x + 1.0

    def computation():
        return pipeline([stage, stage], 4, inputs=[1.0], outfeed_queue=outfeed)

    with pytest.raises(ValueError, match=r"stages of a pipeline.*Received: `ipu_shard\(1\)`"):
        in_a_session(computation)


def test_a_shard_after_replicas_are_known():
    configure(2)
    strategy = IPUStrategy()

    @tf.function
    def step(x):
        x = cross_replica_ops.cross_replica_sum(x)
        with scopes.ipu_shard(1):
            return x + x

    # Both IPUs are of one replica, which adds up nothing.
    assert strategy.run(step, [tf.ones([2])]).numpy().tolist() == [2.0, 2.0]


# The host in the middle of a program.


@pytest.mark.parametrize("jit_compile", [False, True])
def test_what_xla_lacks_in_a_function(jit_compile, capfd):
    configure()
    strategy = IPUStrategy()

    @tf.function(jit_compile=jit_compile)
    def step(x):
        squares = tf.sort(x * x)
        with scopes.outside_compilation_scope():
            tf.print("seen:", tf.strings.as_string(squares[0]))
            y = tf.ensure_shape(tf.numpy_function(np.cumsum, [squares], tf.float32), [512])
        return tf.sort(squares + y)

    found = strategy.run(step, [tf.ones([512])])
    np.testing.assert_array_equal(found, np.arange(1, 513) + 1.0)
    assert 'seen: "1.000000"' in capfd.readouterr().err
    model = last_report().model
    (host,) = [k for k, o in enumerate(model.program.compute_sets) if o.family.startswith("Outs")]
    assert model.costs[host].detail == "2,048 bytes to the host, 2,048 from it"
    assert model.program.compute_sets[host].flops == 0


def test_work_of_the_host_costs_its_copies():
    """A product that XLA could compile is no work of the IPU either, nor its gradient."""
    configure()
    strategy = IPUStrategy()
    with strategy.scope():
        weight = tf.Variable(W0)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            with scopes.outside_compilation_scope():
                y = tf.nn.relu(x @ weight)
            loss = tf.reduce_sum(tf.sort(y))
        return loss, tape.gradient(loss, weight)

    loss, gradient = strategy.run(step, [tf.constant(X)])
    assert float(loss) == pytest.approx(np.maximum(X @ W0, 0).sum(), rel=1e-5)
    np.testing.assert_allclose(gradient, X.T @ (X @ W0 > 0), rtol=1e-5)
    sets = last_report().model.program.compute_sets
    families = [one.family for one in sets]
    assert "dot" not in families
    assert families.count("OutsideCompilation") == 2


@pytest.mark.parametrize("in_session", [False, True])
def test_what_xla_lacks_in_a_loop(in_session):
    configure()
    seen = []

    def body(x):
        with scopes.outside_compilation_scope():
            y = tf.numpy_function(lambda a: seen.append(a[0]) or a * 2, [x], tf.float32)
        return tf.ensure_shape(y, [2]) + 1.0

    def loop():
        return loops.repeat(3, body, [tf.ones([2])])

    if in_session:
        with tf.Graph().as_default(), v1.Session() as session:
            with scopes.ipu_scope(IPU):
                (result,) = compile_computation(loop)
            found = session.run(result)
    else:
        found = IPUStrategy().run(tf.function(loop, jit_compile=True))
    assert np.asarray(found).tolist() == [15.0, 15.0]
    assert seen == [1.0, 3.0, 7.0]


# Types of sums.


def test_partials_of_products_of_halves():
    configure()
    strategy = IPUStrategy()
    x = tf.cast(tf.random.normal([64, 512], seed=1), tf.float16)

    @tf.function
    def step(x):
        with scopes.partials_type(np.float16):
            y = tf.matmul(x, x, transpose_b=True)
        return tf.matmul(y, x)

    strategy.run(step, [x])
    model = last_report().model
    sets = zip(model.program.compute_sets, model.costs, strict=True)
    vertices = [cost.vertex.split()[-2:] for one, cost in sets if one.family == "dot"]
    assert vertices == [["float16", "float16"], ["float16", "float32"]]

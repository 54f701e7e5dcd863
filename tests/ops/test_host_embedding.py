"""Tables on the host: who may look them up, what training makes of them, and what that takes."""

import doctest
import re
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from host_tables import trained
from replicas import run as run_replicas

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops import host_embedding
from ipu_keras.ops.embedding_ops import (
    HostEmbedding,
    HostEmbeddingOptimizerSpec,
    HostEmbeddingSGDGAOptimizerSpec,
    create_host_embedding,
)
from ipu_keras.system import SYSTEM

RANDOM = np.random.default_rng(0)
TABLE = RANDOM.standard_normal((10, 3)).astype(np.float32)
# Six batches of five ids, some of them several times.
BATCHES = RANDOM.integers(0, 10, (6, 5)).astype(np.int32)
SGD = HostEmbeddingOptimizerSpec(0.1)
NOT_REGISTERED = "Host embedding interface with id='words' not registered"


@pytest.fixture(scope="module")
def strategies():
    """Strategies on a device of one IPU and one of two."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = [1, 2]
    config.configure_ipu_system()
    yield {count: IPUStrategy(f"/device:IPU:{count - 1}") for count in (1, 2)}
    SYSTEM.reset()


def words(spec=SGD, table=TABLE, **options):
    return create_host_embedding(
        "words", table.shape, table.dtype, optimizer_spec=spec, initializer=table, **options
    )


def loss_of(embedding, ids):
    """Trains rows to be small; the optimizer of a program would be given no variables."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(embedding.lookup(ids) ** 2)
    tape.gradient(loss, [])
    return loss


def spec_of(num_batches):
    if num_batches == 1:
        return HostEmbeddingOptimizerSpec(0.1)
    return HostEmbeddingSGDGAOptimizerSpec(0.1, num_batches)


def test_example_in_the_docstring():
    assert doctest.testmod(host_embedding).failed == 0


@pytest.mark.parametrize("jit_compile", [None, False, True], ids=["eager", "function", "xla"])
@pytest.mark.parametrize("num_batches", [1, 2, 3])
def test_training(num_batches, jit_compile):
    embedding = words(spec_of(num_batches))

    def step(ids):
        return loss_of(embedding, ids)

    run = step if jit_compile is None else tf.function(step, jit_compile=jit_compile)
    table, losses = trained(TABLE, BATCHES, 0.1, num_batches)
    with embedding.register():
        np.testing.assert_allclose([run(tf.constant(ids)) for ids in BATCHES], losses, rtol=1e-6)
    np.testing.assert_allclose(embedding.get_embedding_tensor(), table, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("num_batches", [1, 2])
def test_training_in_a_session(num_batches):
    table, losses = trained(TABLE, BATCHES, 0.1, num_batches)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        embedding = words(spec_of(num_batches))
        ids = tf.compat.v1.placeholder(tf.int32, [5])
        weight = tf.compat.v1.get_variable("weight", initializer=tf.constant(1.0))
        loss = tf.reduce_sum((embedding.lookup(ids) * weight) ** 2)
        optimizer = tf.compat.v1.train.MomentumOptimizer(0.0, 0.9)
        train = optimizer.minimize(loss)
        assert embedding.get_embedding_tensor() in tf.compat.v1.global_variables()
        session.run(tf.compat.v1.global_variables_initializer())
        with embedding.register(session):
            found = [session.run([loss, train], {ids: batch})[0] for batch in BATCHES]
        np.testing.assert_allclose(found, losses, rtol=1e-6)
        values = session.run(embedding.get_embedding_tensor())
    np.testing.assert_allclose(values, table, rtol=1e-6, atol=1e-7)


def test_two_lookups_in_a_session_see_the_table_of_before():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        embedding = words()
        first, second = (embedding.lookup(tf.constant([row, row])) for row in (3, 3))
        loss = tf.reduce_sum(first**2) + tf.reduce_sum(second**2)
        train = tf.compat.v1.train.GradientDescentOptimizer(1.0).minimize(loss)
        session.run(tf.compat.v1.global_variables_initializer())
        with embedding.register(session):
            for _ in range(20):
                before = session.run(embedding.get_embedding_tensor())[3]
                assert session.run([loss, train])[0] == pytest.approx(4 * (before**2).sum())
                after = session.run(embedding.get_embedding_tensor())[3]
                np.testing.assert_allclose(after, before - 0.1 * 4 * 2 * before, rtol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("num_batches", [1, 2])
def test_training_with_a_strategy(strategies, num_batches, num_replicas, jit_compile):
    """All replicas of a device run the function, on the same ids."""
    strategy = strategies[num_replicas]
    with strategy.scope():
        embedding = words(spec_of(num_batches))
        step = tf.function(lambda ids: loss_of(embedding, ids), jit_compile=jit_compile)
        with pytest.raises(tf.errors.FailedPreconditionError, match=NOT_REGISTERED):
            strategy.run(step, [tf.constant(BATCHES[0])])
        with embedding.register():
            found = [strategy.run(step, [tf.constant(ids)]) for ids in BATCHES]
    assert embedding.get_embedding_tensor().device.endswith("device:CPU:0")
    table, losses = trained(TABLE, BATCHES, 0.1 * num_replicas, num_batches)
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    np.testing.assert_allclose(embedding.get_embedding_tensor(), table, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_replicas_share_the_table(jit_compile):
    """Each has ids of its own; all look up what there was before any of them trained."""
    embedding = words()
    ids = np.array([[1, 2, 2], [2, 3, 3]], np.int32)
    with embedding.register():
        losses = run_replicas(lambda ids: loss_of(embedding, ids), ids, jit_compile=jit_compile)
    table, [expected] = trained(TABLE, [ids.ravel()], 0.1)
    np.testing.assert_allclose(embedding.get_embedding_tensor(), table, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(losses, (TABLE[ids] ** 2).sum((1, 2)), rtol=1e-6)
    assert sum(losses) == pytest.approx(expected, rel=1e-6)


class Rows(keras.layers.Layer):
    """What a script would put in front of its model."""

    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding

    def call(self, ids):
        return self.embedding.lookup(ids)


def keras_model(embedding, weights, size, steps, accumulation, jit_compile=True):
    ids = keras.Input((4,), batch_size=size, dtype="int32")
    dense = keras.layers.Dense(1, use_bias=False)
    model = keras.Model(ids, dense(Rows(embedding)(ids)))
    dense.set_weights([weights])
    optimizer = keras.optimizers.SGD(0.01)
    model.compile(
        optimizer=optimizer, loss="mse", steps_per_execution=steps, jit_compile=jit_compile
    )
    if accumulation > 1:
        model.set_gradient_accumulation_options(
            gradient_accumulation_steps_per_replica=accumulation
        )
    return model


def fit_by_numpy(weights, x, y, num_replicas, accumulation):
    """The table and the weights after an epoch of batches of 4; replicas take turns."""
    table, weights = TABLE.copy(), weights.copy()
    pending, gradient = [], 0
    for number, start in enumerate(range(0, len(x), 4), start=1):
        ids, rows = x[start : start + 4], table[x[start : start + 4]]
        difference = 2 * (rows @ weights - y[start : start + 4]) / 16
        gradient = gradient + np.einsum("bti,bto->io", rows, difference)
        pending.append((ids, difference @ weights.T))
        if number % (num_replicas * accumulation) == 0:
            weights = weights - 0.01 * gradient
            for indices, rows in pending:
                np.subtract.at(table, indices, 0.1 * rows)
            pending, gradient = [], 0
    return table, weights


@pytest.mark.parametrize(
    ("num_replicas", "accumulation", "jit_compile"),
    [(1, 1, True), (1, 3, False), (2, 1, True), (2, 3, False)],
)
def test_fit(strategies, num_replicas, accumulation, jit_compile):
    x = RANDOM.integers(0, 10, (24, 4)).astype(np.int32)
    y = RANDOM.standard_normal((24, 4, 1)).astype(np.float32)
    weights = RANDOM.standard_normal((3, 1)).astype(np.float32)
    with strategies[num_replicas].scope():
        embedding = words(spec_of(accumulation))
        model = keras_model(embedding, weights, 4, 3, accumulation, jit_compile)
        with embedding.register():
            model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        with pytest.raises(tf.errors.FailedPreconditionError, match=NOT_REGISTERED):
            model.fit(x, y, batch_size=4, verbose=0)
    table, weights = fit_by_numpy(weights, x, y, num_replicas, accumulation)
    np.testing.assert_allclose(embedding.get_embedding_tensor(), table, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.get_weights()[0], weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("jit_compile", [None, False, True], ids=["eager", "function", "xla"])
def test_lookup_needs_registration(jit_compile):
    embedding = words(spec=None)
    run = embedding.lookup
    if jit_compile is not None:
        run = tf.function(embedding.lookup, jit_compile=jit_compile)
    ids = tf.constant([[4, 4], [0, 9]])
    for _ in range(2):
        with pytest.raises(tf.errors.FailedPreconditionError, match=NOT_REGISTERED):
            run(ids)
        with embedding.register():
            np.testing.assert_array_equal(run(ids), TABLE[ids])


def test_each_session_is_registered_by_itself():
    with tf.Graph().as_default(), tf.compat.v1.Session() as first:
        embedding = words(spec=None)
        rows = embedding.lookup([1])
        with tf.compat.v1.Session() as second:
            for session in (first, second):
                session.run(tf.compat.v1.global_variables_initializer())
            with embedding.register():  # the default session, which is the second
                np.testing.assert_array_equal(second.run(rows), TABLE[[1]])
                with pytest.raises(tf.errors.FailedPreconditionError, match=NOT_REGISTERED):
                    first.run(rows)
        with pytest.raises(tf.errors.FailedPreconditionError, match=NOT_REGISTERED):
            first.run(rows)


def test_registered_once_at_a_time():
    embedding = words(spec=None)
    with embedding.register():
        with (
            pytest.raises(ValueError, match="once at a time.*name='words'"),
            embedding.register(),
        ):
            pass
        np.testing.assert_array_equal(embedding.lookup([2]), TABLE[[2]])
    with pytest.raises(KeyError), embedding.register():
        raise KeyError
    with pytest.raises(tf.errors.FailedPreconditionError, match=NOT_REGISTERED):
        embedding.lookup([2])


def test_a_graph_needs_a_session():
    with tf.Graph().as_default():
        embedding = words(spec=None)
        with (
            pytest.raises(ValueError, match="`session` must be.*session=None"),
            embedding.register(),
        ):
            pass


@pytest.mark.parametrize("jit_compile", [False, True])
def test_ids_out_of_range(jit_compile):
    embedding = words()
    ids = tf.constant([-7, 3, 10], tf.int32)

    def step(ids, clip):
        with tf.GradientTape() as tape:
            rows = embedding.lookup(ids, clip_indices=clip)
        tape.gradient(rows, [])
        return rows

    run = tf.function(step, jit_compile=jit_compile)
    with embedding.register():
        np.testing.assert_array_equal(run(ids, True), TABLE[[0, 3, 9]])
        table = embedding.get_embedding_tensor().numpy()
        changed = TABLE.copy()
        changed[[0, 3, 9]] -= np.float32(0.1)
        np.testing.assert_allclose(table, changed, rtol=1e-6)
        rows = run(ids, False)
        np.testing.assert_array_equal(rows, [[np.nan] * 3, table[3], [np.nan] * 3])
        changed[3] -= np.float32(0.1)
        np.testing.assert_allclose(embedding.get_embedding_tensor(), changed, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_types_of_ids(dtype):
    embedding = words(spec_of(2))
    with embedding.register():
        for _ in range(2):
            loss_of(embedding, np.array([1, 1], dtype))
    table, _ = trained(TABLE, [np.array([1, 1])] * 2, 0.1, 2)
    np.testing.assert_allclose(embedding.get_embedding_tensor(), table, rtol=1e-6)


def test_half_precision():
    table = TABLE.astype(np.float16)
    embedding = words(spec_of(2), table)
    with embedding.register():
        assert embedding.lookup([1]).dtype == tf.float16
        for ids in BATCHES[:2]:
            loss_of(embedding, ids)
    expected, _ = trained(table, BATCHES[:2], np.float16(0.1), 2)
    np.testing.assert_allclose(embedding.get_embedding_tensor(), expected, rtol=1e-2, atol=1e-2)


def test_no_ids():
    embedding = words(spec_of(2))
    with embedding.register():
        for _ in range(2):
            assert float(loss_of(embedding, tf.zeros((0, 2), tf.int32))) == 0
        assert embedding.lookup(tf.zeros((0, 2), tf.int32)).shape == (0, 2, 3)
    np.testing.assert_array_equal(embedding.get_embedding_tensor(), TABLE)


def test_collected_gradients_outlive_a_trace():
    """What a function collected is subtracted after the next mini-batch, whoever has it."""
    embedding = words(spec_of(2))
    first, second = (tf.function(lambda ids: loss_of(embedding, ids)) for _ in range(2))
    with embedding.register():
        first(tf.constant(BATCHES[0]))
        np.testing.assert_array_equal(embedding.get_embedding_tensor(), TABLE)
    with embedding.register():
        second(tf.constant(BATCHES[1]))
    table, _ = trained(TABLE, BATCHES[:2], 0.1, 2)
    np.testing.assert_allclose(embedding.get_embedding_tensor(), table, rtol=1e-6)


def test_two_lookups_of_a_step_are_one_mini_batch():
    embedding = words(spec_of(2))

    @tf.function
    def step(first, second):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(embedding.lookup(first) ** 2)
            loss += tf.reduce_sum(embedding.lookup(second) ** 2)
        tape.gradient(loss, [])

    with embedding.register():
        step(tf.constant(BATCHES[0]), tf.constant(BATCHES[1]))
        np.testing.assert_array_equal(embedding.get_embedding_tensor(), TABLE)
        step(tf.constant(BATCHES[2]), tf.constant(BATCHES[3]))
    table, _ = trained(TABLE, BATCHES[:4], 0.1, 4)
    np.testing.assert_allclose(embedding.get_embedding_tensor(), table, rtol=1e-6)


def test_an_open_batch_has_a_shape():
    embedding = words(spec=None)
    run = tf.function(embedding.lookup, input_signature=[tf.TensorSpec((None, 4), tf.int32)])
    assert run.get_concrete_function().structured_outputs.shape.as_list() == [None, 4, 3]


@pytest.mark.parametrize(
    "initializer",
    [
        keras.initializers.Constant(2.0),
        tf.compat.v1.ones_initializer,
        np.full((4, 2), 3.0),
        lambda shape, dtype: tf.fill(shape, tf.cast(4, dtype)),
    ],
    ids=["Keras", "TensorFlow 1, a class", "an array", "a function"],
)
def test_initializers(initializer, strategies):
    with strategies[1].scope():
        embedding = create_host_embedding("words", (4, 2), tf.float16, initializer=initializer)
    table = embedding.get_embedding_tensor()
    assert table.dtype == tf.float16
    assert table.device.endswith("device:CPU:0")
    assert len(np.unique(table)) == 1


def test_default_initializer_is_glorots():
    table = create_host_embedding("words", (40, 20), tf.float32).get_embedding_tensor().numpy()
    limit = np.sqrt(6 / 60)
    assert 0.9 * limit < abs(table).max() <= limit


def test_a_table_of_the_users():
    variable = tf.Variable(TABLE)
    embedding = HostEmbedding("words", variable, optimizer_spec=SGD)
    assert embedding.get_embedding_tensor() is variable
    with embedding.register():
        loss_of(embedding, BATCHES[0])
    table, _ = trained(TABLE, BATCHES[:1], 0.1)
    np.testing.assert_allclose(variable, table, rtol=1e-6)
    constant = HostEmbedding("words", tf.constant(TABLE))
    with constant.register():
        np.testing.assert_array_equal(constant.lookup([[3]]), TABLE[[[3]]])


def test_is_one_operation():
    embedding = words()
    graph = tf.function(lambda ids: loss_of(embedding, ids)).get_concrete_function(BATCHES[0]).graph
    names = {op.type: op.name for op in graph.get_operations()}
    assert names["ResourceGather"].startswith("poplar.HostEmbedding/")
    assert names["ResourceScatterSub"].startswith("gradient_tape/poplar.HostEmbedding/")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"name": 3}, TypeError, "`name` must be a string. Received: name=3"),
        ({"partition_strategy": "ROW"}, ValueError, "'TOKEN', 'ENCODING'.*='ROW'"),
        ({"optimizer_spec": "SGD"}, TypeError, "`optimizer_spec` must be.*='SGD'"),
        ({"embedding_tensor": TABLE}, TypeError, "`embedding_tensor` must be.*ndarray"),
        (
            {"embedding_tensor": tf.constant(TABLE), "optimizer_spec": SGD},
            TypeError,
            "`embedding_tensor` must be.*with an optimizer",
        ),
        ({"embedding_tensor": tf.zeros(3)}, ValueError, r"\(tokens, encoding\).*\(3,\)"),
        ({"embedding_tensor": tf.zeros((3, 2), tf.int32)}, TypeError, "float16 or.*: int32"),
    ],
)
def test_refused(change, error, message):
    given = {"name": "words", "embedding_tensor": tf.constant(TABLE)}
    with pytest.raises(error, match=message):
        HostEmbedding(**{**given, **change})


def test_refused_shape_and_type():
    with pytest.raises(ValueError, match=r"positive integers. Received: shape \(0, 3\)"):
        create_host_embedding("words", (0, 3), tf.float32)
    with pytest.raises(TypeError, match="Received: float64"):
        create_host_embedding("words", (4, 3), tf.float64)
    with pytest.raises(TypeError, match=r"`indices` must be a tensor of integers"):
        words().lookup([0.5])


def test_old_call_is_refused():
    with pytest.raises(NotImplementedError, match=r"HostEmbedding.__call__ is not supported.*reg"):
        words()(iteration_count=3)


def test_partition_strategy_is_not_modelled():
    with pytest.warns(UserWarning, match="partition_strategy='ENCODING' has no effect here"):
        words(partition_strategy="ENCODING")


# What a step takes, for a table of 10**6 rows of 64 numbers: 256 MB.

ROWS, ENCODING, IDS = 10**6, 64, 4096
MEGABYTES = ROWS * ENCODING * 4 / 2**20


def memory(kind):
    """Of this process in MB: `"VmRSS"`, or `"VmHWM"`, the most since the last reset."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{kind}:\s+(\d+)", status)[1]) / 1024


def growth(run):
    """The most MB that a call takes beyond those before it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("this system does not let a process reset its peak of memory")
    before = memory("VmRSS")
    run()
    return memory("VmHWM") - before


def large(spec):
    return create_host_embedding(
        "words", (ROWS, ENCODING), tf.float32, optimizer_spec=spec, initializer=np.zeros
    )


def test_growth_is_seen():
    assert growth(lambda: np.ones((ROWS, ENCODING), np.float32)) > 0.9 * MEGABYTES


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("num_batches", [1, 2])
def test_memory_of_a_step_does_not_depend_on_the_table(num_batches, jit_compile):
    embedding = large(spec_of(num_batches))
    batches = [RANDOM.integers(0, ROWS, IDS).astype(np.int32) for _ in range(8)]

    @tf.function(jit_compile=jit_compile)
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(embedding.lookup(ids))
        tape.gradient(loss, [])
        return loss

    with embedding.register():
        step(tf.constant(batches[0]))  # compiles
        step(tf.constant(batches[1]))
        start = time.perf_counter()
        taken = growth(lambda: [step(tf.constant(ids)) for ids in batches[2:]])
        seconds = (time.perf_counter() - start) / 6
    print(f"{taken:.1f} MB and {seconds * 1000:.1f} ms per step, beside {MEGABYTES:.0f} MB")
    assert taken < MEGABYTES / 8
    count = np.bincount(np.concatenate(batches), minlength=ROWS)
    table = embedding.get_embedding_tensor().numpy()
    np.testing.assert_allclose(table, np.outer(-0.1 * count, np.ones(ENCODING)), rtol=1e-5)


def test_memory_of_replicas_of_a_model_does_not_depend_on_the_table(strategies):
    x = RANDOM.integers(0, ROWS, (8 * 1024, 4)).astype(np.int32)
    y = np.ones((len(x), 4, 1), np.float32)
    with strategies[2].scope():
        embedding = large(SGD)
        model = keras_model(embedding, np.ones((ENCODING, 1), np.float32), 1024, 2, 1)
        with embedding.register():
            model.fit(x, y, batch_size=1024, verbose=0)
            table = embedding.get_embedding_tensor()
            before = tf.math.count_nonzero(table)
            taken = growth(lambda: model.fit(x, y, batch_size=1024, verbose=0))
    print(f"{taken:.1f} MB, beside {MEGABYTES:.0f} MB")
    assert 0 < int(before) == len(np.unique(x)) * ENCODING
    assert taken < MEGABYTES / 8

"""Tables on the host: what lookups give, in functions and in models, and what is refused."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf
from host_tables import (
    BATCHES,
    ENCODING,
    MEGABYTES,
    NOT_REGISTERED,
    ROWS,
    SGD,
    TABLE,
    configured_strategies,
    growth,
    large,
    loss_of,
    spec_of,
    trained,
    words,
)

import ipu_keras
from ipu_keras.machine.system import SYSTEM
from ipu_keras.machine.world import World
from ipu_keras.ops import host_embedding
from ipu_keras.ops.embedding_ops import HostEmbedding, create_host_embedding

RANDOM = np.random.default_rng(1)


@pytest.fixture(scope="module")
def strategies():
    with configured_strategies() as found:
        yield found


def test_example_in_the_docstring():
    assert doctest.testmod(host_embedding).failed == 0


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


def test_reports_know_that_the_table_is_on_the_host():
    table = create_host_embedding("profiled", (10_000, 64), tf.float32, optimizer_spec=SGD)

    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(table.lookup(ids)))
        tape.gradient(loss, [])
        return loss

    with table.register():
        report = ipu_keras.profile(step, tf.TensorSpec((16,), tf.int32))
    assert report.model.memory.bytes_by_category["variables"] == 0
    rows = [row for row in report.rows if row.family == "HostEmbedding"]
    assert [row.detail for row in rows] == [
        "64 bytes to the host, 4,096 from it",
        "4,160 bytes to the host, 0 from it",
    ]


def test_is_one_operation():
    embedding = words()
    graph = tf.function(lambda ids: loss_of(embedding, ids)).get_concrete_function(BATCHES[0]).graph
    lookup, update = (
        [op.name for op in graph.get_operations() if op.type == kind]
        for kind in ("If", "ResourceScatterSub")
    )
    assert lookup == ["poplar.HostEmbedding/cond"]
    [name] = update
    assert name.startswith("gradient_tape/poplar.HostEmbedding/")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"name": 3}, TypeError, "`name` must be a string. Received: name=3"),
        ({"name": ""}, ValueError, "`name` must be a text of one line .* Received: name=''"),
        ({"name": "a\nb"}, ValueError, "`name` must be a text of one line"),
        ({"partition_strategy": "ROW"}, ValueError, "one of TOKEN, ENCODING.*='ROW'"),
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


def test_processes_train_no_table_each(monkeypatch):
    monkeypatch.setattr(SYSTEM, "_world", World(size=2, rank=1))
    with pytest.raises(NotImplementedError, match="'words' with an optimizer in process 1 of 2"):
        words().lookup(tf.constant([0]))


def test_old_call_is_refused():
    with pytest.raises(NotImplementedError, match=r"HostEmbedding.__call__ is not supported.*reg"):
        words()(iteration_count=3)


def test_partition_strategy_is_not_modelled():
    with pytest.warns(UserWarning, match="partition_strategy='ENCODING' has no effect here"):
        words(partition_strategy="ENCODING")


def test_memory_of_replicas_of_a_model_does_not_depend_on_the_table(strategies):
    def fit(embedding, x):
        model = keras_model(embedding, np.ones((ENCODING, 1), np.float32), 1024, 2, 1)
        model.fit(x, np.ones((*x.shape, 1), np.float32), batch_size=1024, verbose=0)

    x = RANDOM.integers(0, ROWS, (4 * 1024, 4)).astype(np.int32)
    with strategies[2].scope():
        # What TensorFlow and XLA need when they run for the first time.
        small = large(SGD, rows=100)
        with small.register():
            fit(small, x % 100)
        embedding = large(SGD)
        with embedding.register():
            taken = growth(lambda: fit(embedding, x))
    print(f"{taken:.1f} MB, beside a table of {MEGABYTES:.0f} MB")
    assert taken < MEGABYTES / 2
    table = embedding.get_embedding_tensor().numpy()
    np.testing.assert_array_equal(np.flatnonzero(table[:, 0]), np.unique(x))

"""What training makes of tables on the host, and what it takes."""

import doctest
import math

import numpy as np
import pytest
import tensorflow as tf
from host_tables import (
    BATCHES,
    ENCODING,
    IDS,
    MEGABYTES,
    NOT_REGISTERED,
    ROWS,
    TABLE,
    configured_strategies,
    growth,
    large,
    loss_of,
    spec_of,
    trained,
    words,
)
from replicas import run as run_replicas

from ipu_keras.ops import host_embedding_optimizers
from ipu_keras.ops.embedding_ops import HostEmbeddingOptimizerSpec, HostEmbeddingSGDGAOptimizerSpec

RANDOM = np.random.default_rng(2)


@pytest.fixture(scope="module")
def strategies():
    with configured_strategies() as found:
        yield found


def test_examples_in_the_docstrings():
    assert doctest.testmod(host_embedding_optimizers).failed == 0


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


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("num_batches", [1, 2])
def test_training_in_a_session(num_batches, in_function):
    table, losses = trained(TABLE, BATCHES, 0.1, num_batches)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        embedding = words(spec_of(num_batches))
        assert embedding.get_embedding_tensor() in tf.compat.v1.global_variables()
        weight = tf.compat.v1.get_variable("weight", initializer=tf.constant(1.0))

        def step(ids):
            loss = tf.reduce_sum((embedding.lookup(ids) * weight) ** 2)
            train = tf.compat.v1.train.GradientDescentOptimizer(0.0).minimize(loss)
            with tf.control_dependencies([train]):
                return tf.identity(loss)

        ids = tf.compat.v1.placeholder(tf.int32, [5])
        loss = tf.function(step)(ids) if in_function else step(ids)
        session.run(tf.compat.v1.global_variables_initializer())
        with embedding.register(session):
            found = [session.run(loss, {ids: batch}) for batch in BATCHES]
        np.testing.assert_allclose(found, losses, rtol=1e-6)
        values = session.run(embedding.get_embedding_tensor())
    np.testing.assert_allclose(values, table, rtol=1e-6, atol=1e-7)


def needed_by(operation):
    """All that runs before an operation of a session's graph."""
    found, pending = set(), [operation]
    while pending:
        op = pending.pop()
        before = {*op.control_inputs, *(tensor.op for tensor in op.inputs)} - found
        found |= before
        pending += before
    return found


def test_two_lookups_in_a_session_see_the_table_of_before():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        embedding = words()
        first, second = (embedding.lookup(tf.constant([row, row])) for row in (3, 3))
        loss = tf.reduce_sum(first**2) + tf.reduce_sum(second**2)
        train = tf.compat.v1.train.GradientDescentOptimizer(1.0).minimize(loss)
        operations = session.graph.get_operations()
        updates = [op for op in operations if op.type == "ResourceScatterSub"]
        # At the same time they would now and then lose a change.
        assert updates[0] in needed_by(updates[1])
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


def test_growth_is_seen():
    assert growth(lambda: np.ones((ROWS, ENCODING), np.float32)) > 0.9 * MEGABYTES


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("num_batches", [1, 2])
def test_memory_of_a_step_does_not_depend_on_the_table(num_batches, jit_compile):
    """The gradient of a sum does not depend on the rows: XLA could read them after the update."""
    batches = [RANDOM.integers(0, ROWS, IDS).astype(np.int32) for _ in range(8)]

    def step_of(embedding):
        def step(ids):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(embedding.lookup(ids))
            tape.gradient(loss, [])
            return loss

        return tf.function(step, jit_compile=jit_compile)

    # What TensorFlow and XLA need when they run for the first time.
    small = large(spec_of(num_batches), rows=IDS)
    with small.register():
        step_of(small)(tf.zeros(IDS, tf.int32))
    embedding = large(spec_of(num_batches))
    step = step_of(embedding)
    with embedding.register():
        taken = growth(lambda: [step(tf.constant(ids)) for ids in batches])
    print(f"{taken:.1f} MB, beside a table of {MEGABYTES:.0f} MB")
    assert taken < MEGABYTES / 2
    count = np.bincount(np.concatenate(batches), minlength=ROWS)
    table = embedding.get_embedding_tensor().numpy()
    np.testing.assert_allclose(table[:, 0], -0.1 * count, rtol=1e-5)
    np.testing.assert_array_equal(table, np.repeat(table[:, :1], ENCODING, axis=1))


def test_what_specs_say():
    assert HostEmbeddingOptimizerSpec(1).get_learning_rate() == 1
    assert HostEmbeddingOptimizerSpec(0.5, "SGD").get_learning_rate() == 0.5
    spec = HostEmbeddingSGDGAOptimizerSpec(learning_rate=0.25, accumulation_factor=3)
    assert isinstance(spec, HostEmbeddingOptimizerSpec)
    assert (spec.get_learning_rate(), spec.get_accumulation_factor()) == (0.25, 3)


def test_slot_variables_do_not_depend_on_the_table():
    for rows in (10, 1000):
        table = tf.Variable(tf.zeros((rows, 3), tf.float16))
        [trigger] = HostEmbeddingOptimizerSpec(0.1).create_slot_variables(table, "words")
        assert (trigger.shape, trigger.dtype, trigger.trainable) == ((), tf.float16, True)
        spec = HostEmbeddingSGDGAOptimizerSpec(0.1, 4)
        assert len(spec.create_slot_variables(table, "words")) == 1
        slots = spec.create_slot_variables(table, "words", 5)
        assert [tuple(slot.shape) for slot in slots] == [(), (4, 5), (4, 5, 3), ()]
        assert [slot.dtype.name for slot in slots] == ["float16", "int32", "float16", "int32"]
        assert [slot.trainable for slot in slots] == [True, False, False, False]


def test_instructions_by_hand():
    """What `HostEmbedding` does with them."""
    table, spec = tf.Variable(TABLE), HostEmbeddingOptimizerSpec(0.1)
    slots = spec.create_slot_variables(table, "by hand")
    spec.create_register_instruction(table, slots, "by hand")
    with tf.GradientTape() as tape:
        ids = tf.constant([2, 2])
        rows = spec.create_lookup_instruction(table, ids, slots, "TOKEN", "by hand")
    np.testing.assert_array_equal(rows, TABLE[[2, 2]])
    # In words: to train a row by a gradient of 1 is to subtract the learning rate; twice here.
    assert float(tape.gradient(rows, slots[0])) == 0
    np.testing.assert_allclose(table[2], TABLE[2] - 0.2, rtol=1e-6)
    spec.create_deregister_instruction(table, slots, "by hand")
    with pytest.raises(tf.errors.FailedPreconditionError, match="id='by hand' not registered"):
        spec.create_lookup_instruction(table, ids, slots, "TOKEN", "by hand")


def test_accumulation_needs_a_static_number_of_ids():
    embedding = words(spec_of(2))
    step = tf.function(
        lambda ids: loss_of(embedding, ids), input_signature=[tf.TensorSpec([None], tf.int32)]
    )
    with pytest.raises(ValueError, match=r"static number of ids.*Received: None ids"):
        step.get_concrete_function()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: HostEmbeddingOptimizerSpec("0.1"), TypeError, "a number.*learning_rate='0.1'"),
        (lambda: HostEmbeddingOptimizerSpec(True), TypeError, "a number.*learning_rate=True"),
        (lambda: HostEmbeddingOptimizerSpec(-1.0), ValueError, "at least 0.*learning_rate=-1.0"),
        (lambda: HostEmbeddingOptimizerSpec(math.nan), ValueError, "finite.*learning_rate=nan"),
        (lambda: HostEmbeddingOptimizerSpec(math.inf), ValueError, "finite.*learning_rate=inf"),
        (
            lambda: HostEmbeddingSGDGAOptimizerSpec(np.float32("nan"), 2),
            ValueError,
            "finite.*learning_rate=.*nan",
        ),
        (lambda: HostEmbeddingOptimizerSpec(0.1, "Adam"), ValueError, "None or 'SGD'.*='Adam'"),
        (lambda: HostEmbeddingSGDGAOptimizerSpec(0.1, 2.0), TypeError, "an integer.*factor=2.0"),
        (lambda: HostEmbeddingSGDGAOptimizerSpec(0.1, 0), ValueError, "at least 1.*factor=0"),
    ],
)
def test_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()

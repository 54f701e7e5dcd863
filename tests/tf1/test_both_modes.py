"""Programs of all that is under `host`, `functions` and `ops`, in both modes of TensorFlow.

In that of TensorFlow 1 sizes are no integers, tensors are compared by identity, and loops are
others. What programs compute must not differ.
"""

import json

import pytest

PROGRAMS = """
import json
import sys
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

v1 = tf.compat.v1
if sys.argv[1] == "1":
    v1.disable_v2_behavior()
ipu.config.reset_ipu_configuration()
config = ipu.config.IPUConfig()
config.auto_select_ipus = 2
config.configure_ipu_system()
ops = ipu.ops


def numbers(*shape):
    found = np.random.default_rng(0).standard_normal(shape).astype("float32")
    return tf.constant(found)


def weight(*shape):
    made = np.random.default_rng(1).standard_normal(shape).astype("float32")
    return v1.get_variable("weight", initializer=made, use_resource=True)


def layer(kind, **options):
    def run(x):
        made = kind(
            3,
            dtype=tf.float32,
            weights_initializer=v1.ones_initializer(),
            **options,
        )
        return made(x)[0]

    return run


def lengths(*values):
    return tf.constant(values, tf.int32)


CASES = {
    "pooling": ((2, 7, 7, 2), lambda x: tf.nn.max_pool2d(
        tf.nn.relu(tf.nn.conv2d(x, weight(3, 3, 2, 4), 1, "SAME")), 2, 2, "VALID")),
    "tiles and products": ((2, 3, 4), lambda x: tf.tile(
        tf.matmul(x, x, transpose_b=True)[:, None], [1, 2, 1, 1]) * weight(2, 2, 3, 3)),
    "lstm": ((5, 2, 3), layer(ops.rnn_ops.PopnnLSTM)),
    "gru": ((5, 2, 3), layer(ops.rnn_ops.PopnnGRU)),
    "norm": ((2, 3, 3, 4), lambda x: ops.normalization_ops.group_norm(x)),
    "embedding": ((6, 3), lambda x: ops.embedding_ops.embedding_lookup(
        x, lengths(1, 5, 5), serialization_factor=2)),
    "serialized": ((4, 6), lambda x: ops.math_ops.serialized_matmul(
        x, weight(6, 4), 2, "b_rows")),
    "ctc": ((5, 2, 4), lambda x: ops.nn_ops.ctc_loss_v2(
        tf.constant([[1, 2], [2, 0]]), x, lengths(2, 1), lengths(5, 4), 3)),
    "beams": ((5, 2, 4), lambda x: tf.reduce_sum(x) + tf.cast(
        ops.nn_ops.ctc_beam_search_decoder(x, lengths(5, 4), 3, 2)[0], tf.float32)),
    "dropout": ((4, 6), lambda x: ops.rand_ops.dropout(x, 0.25, [4, 1], [3, 4])),
    "slices": ((4, 3), lambda x: ops.slicing_ops.sequence_slice(
        tf.zeros([5, 3]), x, lengths(2, 1), lengths(0, 3), lengths(1, 0), True)),
    "gather": ((3,), lambda x: ops.all_to_all_op.all_gather(x * weight(3), 2)),
    "exchange": ((4, 2), lambda x: ops.all_to_all_op.all_to_all(x, 0, 1, 2)),
    "scatter": ((5,), lambda x: ops.reduce_scatter_op.reduce_scatter(x * weight(5), 2)),
    "sampled": ((4, 3), lambda x: ops.nn_ops.sampled_softmax_loss(
        weight(8, 3), tf.zeros([8]), tf.constant([[1], [2], [3], [0]], tf.int64), x, 2, 8,
        sampled_values=(tf.constant([4, 5], tf.int64), tf.ones([4, 1]), tf.ones([2])))),
}


def trained(shape, function):
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(
        np.random.default_rng(0).standard_normal(shape).astype("float32")).repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(total, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x) ** 2)
        gradient = tape.gradient(loss, x)
        optimizer = ipu.optimizers.CrossReplicaOptimizer(
            v1.train.GradientDescentOptimizer(0.01))
        variables = tape.watched_variables()
        trains = [optimizer.minimize(loss, var_list=variables)] if variables else []
        sent = {"loss": loss, "gradient": tf.reduce_sum(gradient * numbers(*shape))}
        return total + loss, outfeed.enqueue(sent), *trains

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        total = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, body, [0.0], infeed))
    dequeued = outfeed.dequeue()
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        found = [*session.run(total), *map(np.sum, session.run(dequeued).values())]
    return [float(value) for value in found]


def looked_up():
    optimizer = ipu.embedding_ops.HostEmbeddingSGDGAOptimizerSpec(0.5, 2)
    table = ipu.embedding_ops.create_host_embedding(
        "table", [4, 2], tf.float32, optimizer_spec=optimizer, initializer=v1.ones_initializer())

    def body(total):
        rows = table.lookup(lengths(1, 3, 3))
        gradient = v1.train.GradientDescentOptimizer(0.1).minimize(
            tf.reduce_sum(rows * weight(3, 2)))
        return total + tf.reduce_sum(rows), gradient

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        total = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(4, body, [0.0]))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        with table.register(session):
            return [float(value) for value in session.run(total)]


found = {}
for name, (shape, function) in CASES.items():
    with tf.Graph().as_default():
        try:
            found[name] = trained(shape, function)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
with tf.Graph().as_default():
    found["host embedding"] = looked_up()
print(json.dumps(found))
"""


def test_programs_compute_the_same(run_forked):
    of_1, of_2 = (
        json.loads(run_forked(PROGRAMS, version).stdout.splitlines()[-1]) for version in "12"
    )
    failed = {name: said for name, said in {**of_2, **of_1}.items() if isinstance(said, str)}
    assert failed == {}
    for name, values in of_2.items():
        assert of_1[name] == pytest.approx(values, rel=1e-5), name

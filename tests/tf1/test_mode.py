"""Programs of what is under `host`, `functions` and `ops`, in the mode of TensorFlow 1.

In it, sizes are no integers, tensors are compared by identity, and loops are
others. What programs compute must not differ.
"""

import json

import pytest

PROGRAMS = """
import json
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

v1 = tf.compat.v1
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
    "products": ((2, 3, 4), lambda x: tf.tile(
        tf.matmul(x, x, transpose_b=True)[:, None], [1, 2, 1, 1]) * weight(2, 2, 3, 3)),
    "lstm": ((5, 2, 3), layer(ops.rnn_ops.PopnnLSTM)),
    "norm": ((2, 3, 3, 4), lambda x: ops.normalization_ops.group_norm(x)),
    "embedding": ((6, 3), lambda x: ops.embedding_ops.embedding_lookup(
        x, lengths(1, 5, 5), serialization_factor=2)),
    "serialized": ((4, 6), lambda x: ops.math_ops.serialized_matmul(
        x, weight(6, 4), 2, "b_rows")),
    "ctc": ((5, 2, 4), lambda x: ops.nn_ops.ctc_loss_v2(
        tf.constant([[1, 2], [2, 0]]), x, lengths(2, 1), lengths(5, 4), 3)),
    "dropout": ((4, 6), lambda x: ops.rand_ops.dropout(x, 0.25, [4, 1], [3, 4])),
    "slices": ((4, 3), lambda x: ops.slicing_ops.sequence_slice(
        tf.zeros([5, 3]), x, lengths(2, 1), lengths(0, 3), lengths(1, 0), True)),
    "gather": ((3,), lambda x: ops.all_to_all_op.all_gather(x * weight(3), 2)),
    "exchange": ((4, 2), lambda x: ops.all_to_all_op.all_to_all(x, 0, 1, 2)),
    "scatter": ((5,), lambda x: ops.reduce_scatter_op.reduce_scatter(x * weight(5), 2)),
}


def computed():
    # The squares of all results, and their gradients, from one program that also trains.
    table = ipu.embedding_ops.create_host_embedding(
        "table", [4, 2], tf.float32, initializer=v1.ones_initializer(),
        optimizer_spec=ipu.embedding_ops.HostEmbeddingSGDGAOptimizerSpec(0.5, 2))
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(
        tf.data.Dataset.from_tensor_slices(np.float32([1.0, 1.0, 0.5, 0.5])))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(total, scale):
        sent, losses = {}, [tf.reduce_sum(table.lookup(lengths(1, 3, 3)))]
        for name, (shape, function) in CASES.items():
            with v1.variable_scope(name):
                x = numbers(*shape) * scale
                losses.append(tf.reduce_sum(function(x) ** 2))
                gradient = tf.gradients(losses[-1], x)[0]
                sent[name] = tf.stack([losses[-1], tf.reduce_sum(gradient * gradient)])
        optimizer = ipu.optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(1e-4))
        return total + tf.add_n(losses), outfeed.enqueue(sent), optimizer.minimize(tf.add_n(losses))

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        total = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, body, [0.0], infeed))
    dequeued = outfeed.dequeue()
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        with table.register(session):
            found = {"all": session.run(total)}
        found.update(session.run(dequeued))
    return {name: np.ravel(values).tolist() for name, values in found.items()}


with tf.Graph().as_default():
    print(json.dumps(computed()))
"""

# In the second mode: what the loop hands on; of replica 0, in each of two steps, the squares of a
# result and of its gradient.
EXPECTED = {
    "all": [1803.76],
    "pooling": [1164.44, 83580.2, 286.537, 20349.6],
    "products": [71.5664, 7720.87, 4.40639, 117.439],
    "lstm": [4.61465, 32.0564, 1.96644, 237.08],
    "norm": [71.9999, 1.49977e-09, 71.4641, 0.00135327],
    "embedding": [2.29365, 16.6345, 0.573414, 4.15861],
    "serialized": [23.3709, 306.462, 5.82803, 76.2774],
    "ctc": [32.3408, 186.266, 25.62, 115.996],
    "dropout": [15.6631, 111.382, 3.91578, 27.8456],
    "slices": [2.86357, 11.4543, 0.715892, 2.86357],
    "gather": [0.116903, 0.209088, 0.0292183, 0.0522583],
    "exchange": [0.90881, 13.8779, 0.227202, 3.46948],
    "scatter": [0.233806, 3.80139, 0.0584367, 0.949978],
}


def test_programs_compute_what_they_compute_in_the_second_mode(run_forked):
    found = json.loads(run_forked(PROGRAMS, timeout=400).stdout.splitlines()[-1])
    assert list(found) == list(EXPECTED)
    for name, values in EXPECTED.items():
        of_replica_0 = found[name] if name == "all" else [*found[name][:2], *found[name][4:6]]
        assert of_replica_0 == pytest.approx(values, rel=1e-4, abs=1e-2), name

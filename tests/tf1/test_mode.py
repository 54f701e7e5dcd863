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
    """The squares of all results, and their gradients, from one program that also trains."""
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

# Of the second mode: what the loop hands on, and the sums of what it sends.
EXPECTED = {
    "pooling": [1404.94, 2809.881, 5619.762],
    "products": [94.60977, 189.2195, 756.8782],
    "lstm": [9.13878, 18.27756, 19.53452],
    "gru": [18.13696, 36.27392, 24.92655],
    "norm": [100.6592, 201.3183, 0.0005728991],
    "embedding": [4.58731, 9.17462, 18.34924],
    "serialized": [41.29778, 82.59555, 165.1911],
    "ctc": [64.68164, 129.3633, 65.18776],
    "beams": [195.6856, 391.3711, 379.0555],
    "dropout": [31.32626, 62.65252, 125.305],
    "slices": [5.727136, 11.45427, 22.90854],
    "gather": [0.230854, 0.4617079, 0.9234159],
    "exchange": [1.81762, 13.8779, 27.75581],
    "scatter": [0.4617079, 2.471246, 4.942492],
    "sampled": [17.78063, 35.56127, 30.29061],
    "host embedding": [18.29911],
}


def test_programs_compute_what_they_compute_in_the_second_mode(run_forked):
    found = json.loads(run_forked(PROGRAMS).stdout.splitlines()[-1])
    assert {name: said for name, said in found.items() if isinstance(said, str)} == {}
    assert list(found) == list(EXPECTED)
    for name, values in EXPECTED.items():
        assert found[name] == pytest.approx(values, rel=1e-4, abs=1e-3), name

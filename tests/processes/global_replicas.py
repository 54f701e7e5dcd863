"""What each of several processes runs, for `test_global_replicas.py`: their replicas are one's own.

Elements of data sets go to the replicas of all processes in turn.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import popart
import popdist
import popdist.popart
import popdist.tensorflow
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.horovod.ipu_multi_replica_strategy import IPUMultiReplicaStrategy
from tensorflow.python.ipu.ops import (
    all_to_all_op,
    cross_replica_ops,
    reduce_scatter_op,
    replication_ops,
)

tf1 = tf.compat.v1


def configured(ipus_each=1, normalized_together=1):
    """Where this process's replicas begin, and how many it has, with their IPUs configured."""
    popdist.init()
    config = popdist.tensorflow.set_ipu_config(ipu.config.IPUConfig(), ipus_each)
    norms = config.norms.experimental
    norms.distributed_batch_norm_replica_group_size = normalized_together
    config.configure_ipu_system()
    return popdist.getReplicaIndexOffset(), popdist.getNumLocalReplicas()


def collectives():
    """Each replica has its number, and what it gets of the others goes to an outfeed."""
    configured()
    total = popdist.getNumTotalReplicas()
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function
    def exchange():
        index = replication_ops.replication_index()
        own = tf.cast(index, tf.float32) + 1.0
        vector = tf.range(float(total)) + 10.0 * own
        outfeed.enqueue(
            {
                "index": index,
                "sum": cross_replica_ops.cross_replica_sum(own),
                "mean": cross_replica_ops.cross_replica_mean(own),
                "pairs": cross_replica_ops.cross_replica_sum(own, replica_group_size=2),
                "gathered": all_to_all_op.all_gather(-own, total),
                "flags": all_to_all_op.all_gather(own > 2.0, total),
                "halves": all_to_all_op.all_gather(tf.cast(own / 3, tf.float16), total),
                "to_all": all_to_all_op.all_to_all(vector, 0, 0, total),
                "scattered": reduce_scatter_op.reduce_scatter(vector, total),
                "largest": reduce_scatter_op.reduce_scatter(vector, total, "COLLECTIVE_OP_MAX"),
            }
        )

    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        strategy.run(exchange)
    found = {name: value.numpy()[0] for name, value in outfeed.dequeue().items()}
    one = popdist.getNumLocalReplicas() == 1
    return {name: (value[None] if one else value).tolist() for name, value in found.items()}


def data(offset, local, batch=4, steps=16):
    total = popdist.getNumTotalReplicas()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(steps, total, batch, 8)).astype("f4")[:, offset : offset + local]
    x = x.reshape(-1, batch, 8)
    y = np.tanh(x.sum(axis=2, keepdims=True))
    return tf.data.Dataset.from_tensor_slices((x, y))


def layers(x, y):
    """A small network with average pooling, of variables that each process makes by itself."""
    with tf1.variable_scope("net", reuse=tf1.AUTO_REUSE, use_resource=True):
        x = tf.reshape(x, [-1, 8, 1])
        kernel = tf1.get_variable("k", [3, 1, 4], initializer=tf1.ones_initializer())
        x = tf.nn.conv1d(x, kernel * [[[0.1, -0.2, 0.3, 0.4]]], 1, "SAME")
        x = tf.reshape(tf.nn.avg_pool1d(tf.tanh(x), 2, 2, "SAME"), [-1, 16])
        return last(x, y)


def last(x, y):
    with tf1.variable_scope("net", reuse=tf1.AUTO_REUSE, use_resource=True):
        w = tf1.get_variable("w", [16, 1], initializer=tf1.constant_initializer(0.1))
        return tf.reduce_mean((tf.matmul(x, w) - y) ** 2)


def first(x, y):
    with tf1.variable_scope("first", reuse=tf1.AUTO_REUSE, use_resource=True):
        w = tf1.get_variable("w", [8, 16], initializer=tf1.constant_initializer(0.05))
    return tf.tanh(tf.matmul(x, w) + tf.range(16.0) / 16), y


def session():
    """TensorFlow 1's way: a compiled loop, an infeed, and an optimizer that averages."""
    offset, local = configured()
    with tf1.Graph().as_default(), tf1.Session() as running:
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data(offset, local))

        def step(x, y):
            loss = layers(x, y)
            optimizer = ipu.optimizers.CrossReplicaOptimizer(tf1.train.AdamOptimizer(0.01))
            return optimizer.minimize(loss)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(8, step, [], infeed))
        running.run([tf1.global_variables_initializer(), infeed.initializer])
        running.run(run)
        running.run(run)
        return {"weights": weights(running)}


def pipeline():
    """Two stages on two IPUs, gradients of four batches for each update."""
    offset, local = configured(2)
    with tf1.Graph().as_default(), tf1.Session() as running:
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data(offset, local))
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def optimize(loss):
            plain = tf1.train.MomentumOptimizer(0.1, 0.5)
            return ipu.pipelining_ops.OptimizerFunctionOutput(
                ipu.optimizers.CrossReplicaOptimizer(plain), loss
            )

        def net():
            return ipu.pipelining_ops.pipeline(
                [first, last],
                gradient_accumulation_count=4,
                repeat_count=2,
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                optimizer_function=optimize,
            )

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(net)
        losses = outfeed.dequeue()
        running.run([tf1.global_variables_initializer(), infeed.initializer])
        running.run(run)
        running.run(run)
        return {"weights": weights(running), "losses": np.size(running.run(losses))}


def popart_session():
    """A PopART session that accumulates over two micro-batches, with a mean of all gradients."""
    popdist.init()
    options = popdist.popart.configureSessionOptions(popart.SessionOptions())
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    rng = np.random.default_rng(1)
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 8]))
    hidden = builder.addInitializedInputTensor(rng.normal(size=(8, 16)).astype("f4") / 4)
    out = builder.addInitializedInputTensor(rng.normal(size=(16, 1)).astype("f4") / 4)
    found = builder.aiOnnx.tanh([builder.aiOnnx.matmul([x, hidden])])
    found = builder.aiOnnx.matmul([found, out])
    index = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([found, found])])
    flow = popart.DataFlow(8, {index: popart.AnchorReturnType("All")})
    session = popart.TrainingSession(
        builder.getModelProto(),
        flow,
        index,
        popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.5, False)}),
        popdist.popart.getDevice(),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    local, total = popdist.getNumLocalReplicas(), popdist.getNumTotalReplicas()
    first = popdist.getReplicaIndexOffset()
    fed = rng.normal(size=(8, 2, total, 4, 8)).astype("f4")[:, :, first : first + local]
    fed = np.ascontiguousarray(fed if local > 1 else fed[:, :, 0])
    for _ in range(2):
        session.run(popart.PyStepIO({x: fed}, session.initAnchorArrays()))
    session.weightsToHost()
    kept = {name: np.empty(shape, "f4") for name, shape in ((hidden, (8, 16)), (out, (16, 1)))}
    session.readWeights(popart.PyWeightsIO(kept))
    return {"weights": [float(x) for each in kept.values() for x in each.ravel()]}


def own_loop():
    """A loop of one's own under the strategy: its optimizer adds up over all replicas."""
    configured()
    strategy = IPUMultiReplicaStrategy()
    with strategy.scope():
        net = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, "tanh", use_bias=False)])
        variable = net.trainable_variables[0]
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build([variable])
    # `run` gives all replicas of a process the same data, of which each takes its own part.
    x = np.random.default_rng(0).normal(size=(popdist.getNumTotalReplicas(), 4, 8)).astype("f4")

    @tf.function
    def step(x):
        own = x[replication_ops.replication_index()]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(net(own) ** 2)
        optimizer.apply([tape.gradient(loss, variable.value)], [variable])

    with strategy.scope():
        variable.assign(np.linspace(-1, 1, 64, dtype="f4").reshape(8, 8))
        for _ in range(20):
            strategy.run(step, [tf.constant(x)])
    return {"weights": variable.numpy().ravel().tolist()}


def normalization():
    """Moving averages of one step, of batches of ones in process 0 and of threes in process 1."""
    found = {}
    for together in (1, 2):
        configured(normalized_together=together)
        with IPUMultiReplicaStrategy().scope():
            layer = keras.layers.BatchNormalization(momentum=0.75)
            model = keras.Sequential([keras.Input((1,)), layer])
        model.compile("sgd", "mse")
        x = np.full((4, 1), 1.0 + 2.0 * popdist.getInstanceIndex(), "f4")
        model.fit(x, x, batch_size=4, verbose=0)
        averages = (layer.moving_mean, layer.moving_variance)
        found[together] = [float(average.numpy()[0]) for average in averages]
    return found


def weights(running):
    found = running.run(tf1.trainable_variables())
    return np.concatenate([each.ravel() for each in found]).tolist()


folder, *parts = sys.argv[1:]
runs = {
    "collectives": collectives,
    "loop": own_loop,
    "normalization": normalization,
    "pipeline": pipeline,
    "popart": popart_session,
    "session": session,
}
found = {}
for part in parts:
    ipu.config.reset_ipu_configuration()
    found[part] = runs[part]()
Path(folder, f"{popdist.getInstanceIndex()}.json").write_text(json.dumps(found))

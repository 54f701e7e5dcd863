"""TensorFlow 1: a model on two IPUs, trained in a session, with a layer on each of them."""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(15, "passes over the training images"))

import digits_data
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

import ipu_keras

BATCH_SIZE = 16


def classifier(images: tf.Tensor) -> tf.Tensor:
    """Logits of a perceptron, each layer of which is on an IPU of its own."""
    x = tf.reshape(images, (-1, 64))
    for layer, (width, units) in enumerate([(64, 128), (128, 10)]):
        with ipu.scopes.ipu_shard(layer):
            weights = tf.get_variable(f"weights_{layer}", [width, units])
            biases = tf.get_variable(f"biases_{layer}", [units], initializer=tf.zeros_initializer())
            x = x @ weights + biases
            x = tf.nn.relu(x) if layer == 0 else x
    return x


def ipus_of_variables() -> dict[str, int]:
    """By name of a variable of the last program, the IPU that it is on."""
    model = ipu_keras.last_report().model
    values = model.program.values.values()
    named = {op.name: op.attributes.get("name") for op in model.graph.ops}
    return {named[v.name]: v.ipu for v in values if v.role == "variable" and named.get(v.name)}


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Trains on the digits; prints and returns what it reached, and what is where."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 2
    cfg.configure_ipu_system()
    (x_train, y_train), _ = digits_data.load()
    steps = len(x_train) // BATCH_SIZE

    with tf.Graph().as_default():
        tf.set_random_seed(0)
        dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
        dataset = dataset.shuffle(1000, seed=0).repeat().batch(BATCH_SIZE, drop_remainder=True)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Operation:
            logits = classifier(images)
            with ipu.scopes.ipu_shard(1):
                loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
            # Gradients and weight updates are where their layers are.
            optimizer = ipu.optimizers.ShardedOptimizer(tf.train.AdamOptimizer(0.002))
            train = optimizer.minimize(loss)
            with tf.control_dependencies([train]):
                return outfeed.enqueue(loss)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            epoch = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(steps, step, [], infeed))
        losses_of_epoch = outfeed.dequeue()
        losses = []
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), infeed.initializer])
            for number in range(1, num_epochs + 1):
                session.run(epoch)
                losses.append(float(session.run(losses_of_epoch).mean()))
                print(f"epoch {number}: loss {losses[-1]:.4f}")
    report = ipu_keras.last_report()
    ipus = ipus_of_variables()
    for name, number in sorted(ipus.items()):
        print(f"{name} is on IPU {number}")
    print(report)
    return {"losses": losses, "report": report, "ipus": ipus}


if __name__ == "__main__":
    main()

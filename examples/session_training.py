"""TensorFlow 1: many steps of training in each run of a session."""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(15, "passes over the training images"))

import digits_data
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

BATCH_SIZE = 16


def classifier(images: tf.Tensor) -> tf.Tensor:
    """Logits of a perceptron, whose variables are made when it is first called."""
    with tf.variable_scope("classifier", reuse=tf.AUTO_REUSE, use_resource=True):
        x = tf.reshape(images, (-1, 64))
        for layer, (width, units) in enumerate([(64, 128), (128, 10)]):
            weights = tf.get_variable(f"weights_{layer}", [width, units])
            biases = tf.get_variable(f"biases_{layer}", [units], initializer=tf.zeros_initializer())
            x = x @ weights + biases
            x = tf.nn.relu(x) if layer == 0 else x
    return x


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Trains on the digits; prints and returns what it reached."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    (x_train, y_train), (x_test, y_test) = digits_data.load()
    steps = len(x_train) // BATCH_SIZE

    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
        dataset = dataset.shuffle(1000, seed=0).repeat().batch(BATCH_SIZE, drop_remainder=True)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Operation:
            loss = tf.losses.sparse_softmax_cross_entropy(labels, classifier(images))
            train = tf.train.AdamOptimizer(0.002).minimize(loss)
            with tf.control_dependencies([train]):
                return outfeed.enqueue(loss)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            epoch = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(steps, step, [], infeed))
            images = tf.placeholder(tf.float32, x_test.shape)
            (logits,) = ipu.ipu_compiler.compile(classifier, [images])

        losses_of_epoch = outfeed.dequeue()
        losses = []
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), infeed.initializer])
            for number in range(1, num_epochs + 1):
                session.run(epoch)
                losses.append(float(session.run(losses_of_epoch).mean()))
                print(f"epoch {number}: loss {losses[-1]:.4f}")
            predicted = session.run(logits, {images: x_test}).argmax(axis=1)
    accuracy = float((predicted == y_test).mean())
    print(f"test accuracy {accuracy:.3f}")
    return {"losses": losses, "accuracy": accuracy}


if __name__ == "__main__":
    main()

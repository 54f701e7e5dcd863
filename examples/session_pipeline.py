"""TensorFlow 1: a pipeline of two stages, with a learning rate that is fed.

The report says what the pipeline would cost: cycles of each stage, and how long IPUs wait.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(20, "passes over the training images"))

import digits_data
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

import ipu_keras

BATCH_SIZE = 16
MICRO_BATCHES = 8


def dense(x: tf.Tensor, units: int, name: str) -> tf.Tensor:
    """A layer of neurons."""
    with tf.variable_scope(name, use_resource=True):
        weights = tf.get_variable("weights", [x.shape[-1], units])
        biases = tf.get_variable("biases", [units], initializer=tf.zeros_initializer())
    return x @ weights + biases


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Trains on the digits; prints and returns what it reached."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 2
    cfg.configure_ipu_system()
    (x_train, y_train), _ = digits_data.load()
    updates = len(x_train) // (BATCH_SIZE * MICRO_BATCHES)

    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
        dataset = dataset.shuffle(1000, seed=0).repeat().batch(BATCH_SIZE, drop_remainder=True)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def first(rate: tf.Tensor, images: tf.Tensor, labels: tf.Tensor) -> tuple:
            hidden = tf.nn.relu(dense(tf.reshape(images, (BATCH_SIZE, 64)), 128, "first"))
            return rate, hidden, labels

        def second(rate: tf.Tensor, hidden: tf.Tensor, labels: tf.Tensor) -> tuple:
            logits = dense(hidden, 10, "second")
            return rate, tf.losses.sparse_softmax_cross_entropy(labels, logits)

        def optimizer(
            rate: tf.Tensor, loss: tf.Tensor
        ) -> ipu.pipelining_ops.OptimizerFunctionOutput:
            momentum = tf.train.MomentumOptimizer(rate, 0.9)
            return ipu.pipelining_ops.OptimizerFunctionOutput(momentum, loss)

        def model(rate: tf.Tensor) -> tf.Operation:
            return ipu.pipelining_ops.pipeline(
                [first, second],
                gradient_accumulation_count=MICRO_BATCHES,
                repeat_count=updates,
                inputs=[rate],
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                optimizer_function=optimizer,
                outfeed_loss=True,
                accumulate_outfeed=True,
                name="digits",
            )

        rate = tf.placeholder(tf.float32, [])
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            epoch = ipu.ipu_compiler.compile(model, [rate])
        sums = outfeed.dequeue()
        losses = []
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), infeed.initializer])
            for number in range(1, num_epochs + 1):
                session.run(epoch, {rate: 0.02 / number**0.5})
                losses.append(float(session.run(sums).mean()) / MICRO_BATCHES)
                print(f"epoch {number}: loss {losses[-1]:.4f}")
    report = ipu_keras.last_report()
    print(report)
    return {"losses": losses, "report": report}


if __name__ == "__main__":
    main()

"""An estimator: loops of training steps, checkpoints, evaluations, and a SavedModel.

The second training goes on from the checkpoint of the first.
"""

import os
import tempfile

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(8, "passes over the training images"))

import digits_data
import keras
import tensorflow as tf
from tensorflow.python import ipu

BATCH_SIZE = 16
V1 = tf.compat.v1


def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> tuple:
    """A perceptron; its layers make new variables in each graph, which have the same names."""
    x = tf.reshape(features, (-1, 64))
    logits = keras.layers.Dense(10)(keras.layers.Dense(128, activation="relu")(x))
    Spec = ipu.ipu_estimator.IPUEstimatorSpec
    if mode == tf.estimator.ModeKeys.PREDICT:
        return Spec(mode, predictions={"digit": tf.argmax(logits, axis=1, output_type=tf.int32)})
    loss = V1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return Spec(mode, loss=loss, eval_metrics=(metrics_fn, [labels, logits]))
    return Spec(mode, loss=loss, train_op=V1.train.AdamOptimizer(0.002).minimize(loss))


def metrics_fn(labels: tf.Tensor, logits: tf.Tensor) -> dict:
    """Metrics that the host computes."""
    return {"accuracy": V1.metrics.accuracy(labels, tf.argmax(logits, axis=1))}


def served_images() -> tuple:
    """What is fed to the SavedModel, which runs without an IPU."""
    images = V1.placeholder(tf.float32, [None, 8, 8, 1], "images")
    return tf.estimator.export.TensorServingInputReceiver(images, {"images": images})


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Trains on the digits; prints and returns what it reached."""
    (x_train, y_train), (x_test, y_test) = digits_data.load()
    steps = len(x_train) // BATCH_SIZE

    def training_data() -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
        return dataset.shuffle(1000, seed=0).repeat().batch(BATCH_SIZE, drop_remainder=True)

    def test_data() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(len(x_test) // 4, True)

    with tempfile.TemporaryDirectory() as folder:
        configs = [
            ipu.ipu_run_config.RunConfig(
                ipu.ipu_run_config.IPURunConfig(iterations_per_loop=iterations),
                model_dir=folder,
                tf_random_seed=1,
            )
            for iterations in (steps, 4)
        ]
        estimator, evaluator = (
            ipu.ipu_estimator.IPUEstimator(model_fn, config=config) for config in configs
        )
        evaluations = []
        for max_epochs in (num_epochs - num_epochs // 2, num_epochs):
            estimator.train(training_data, max_steps=max_epochs * steps)
            evaluations.append(evaluator.evaluate(test_data))
            print(
                "after step {global_step}: loss {loss:.4f}, accuracy {accuracy:.3f}".format(
                    **evaluations[-1]
                )
            )
        path = estimator.export_saved_model(os.path.join(folder, "saved"), served_images)
        loaded = tf.saved_model.load(path).signatures["serving_default"]
        served = loaded(images=tf.constant(x_test))["digit"].numpy()
    accuracy = float((served == y_test).mean())
    print(f"accuracy of the SavedModel: {accuracy:.3f}")
    return {"evaluations": evaluations, "accuracy": accuracy}


if __name__ == "__main__":
    main()

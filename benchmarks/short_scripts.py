"""One short script in a process of its own: trains a few steps, evaluates and predicts once.

`short_runs.py` starts it for each kind of script, with stock TensorFlow and with `ipu_keras`.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

# TensorFlow's log has the time of each compilation by XLA, unless the log is muted.
os.environ["TF_CPP_VMODULE"] = "device_compilation_profiler=1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"

import fresh_process
import keras
import models
import numpy as np
import tensorflow as tf
from keras import layers
from tensorflow.python.eager.polymorphic_function import tracing_compilation
from tensorflow.python.framework import func_graph

BATCH_SIZE = 32
STEPS_PER_EPOCH = 16
SEED = 7


def mlp() -> keras.Model:
    """A 64-128-64-10 perceptron."""
    hidden = [layers.Dense(128, "relu"), layers.Dense(64, "relu")]
    return keras.Sequential([keras.Input((64,)), *hidden, layers.Dense(10, "softmax")])


def several_outputs() -> keras.Model:
    """A perceptron of two inputs, with two outputs that each have a loss and a metric."""
    left, right = keras.Input((64,), name="left"), keras.Input((32,), name="right")
    joint = layers.Concatenate()([layers.Dense(64, "relu")(left), layers.Dense(32, "relu")(right)])
    hidden = layers.Dense(64, "relu")(joint)
    outputs = {
        "label": layers.Dense(10, "softmax", name="label")(hidden),
        "value": layers.Dense(1, name="value")(hidden),
    }
    return keras.Model([left, right], outputs)


def lstm() -> keras.Model:
    """A recurrent classifier of 32 tokens."""
    sequence = [layers.Embedding(1000, 32), layers.LSTM(32)]
    return keras.Sequential(
        [keras.Input((32,), dtype="int32"), *sequence, layers.Dense(10, "softmax")]
    )


def transformer() -> keras.Model:
    """One encoder block: sequence 32, width 32, 2 heads."""
    inputs = keras.Input((32, 32))
    attended = layers.MultiHeadAttention(num_heads=2, key_dim=16)(inputs, inputs)
    hidden = layers.LayerNormalization()(inputs + attended)
    projected = layers.Dense(32)(layers.Dense(64, "relu")(hidden))
    hidden = layers.LayerNormalization()(hidden + projected)
    pooled = layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(inputs, layers.Dense(10, "softmax")(pooled))


def cnn() -> keras.Model:
    """Two convolutions with pooling on 16x16 grey images."""
    model = keras.Sequential([keras.Input((16, 16, 1))])
    for filters in (8, 16):
        model.add(layers.Conv2D(filters, 3, activation="relu"))
        model.add(layers.MaxPooling2D())
    model.add(layers.Flatten())
    model.add(layers.Dense(10, "softmax"))
    return model


class OwnTrainStep(keras.Model):
    """A perceptron with a `train_step` of its own."""

    def __init__(self):
        super().__init__()
        self.hidden, self.outer = layers.Dense(128, "relu"), layers.Dense(10, "softmax")

    def call(self, inputs):
        return self.outer(self.hidden(inputs))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, predicted)
        return {metric.name: metric.result() for metric in self.metrics}


class Gan(keras.Model):
    """A convolutional generator and discriminator, trained by turns in one step."""

    def __init__(self):
        super().__init__()
        self.discriminator = keras.Sequential(
            [
                keras.Input((16, 16, 1)),
                layers.Conv2D(16, 3, strides=2, padding="same", activation="leaky_relu"),
                layers.Conv2D(32, 3, strides=2, padding="same", activation="leaky_relu"),
                layers.Flatten(),
                layers.Dense(1),
            ]
        )
        self.generator = keras.Sequential(
            [
                keras.Input((16,)),
                layers.Dense(4 * 4 * 16),
                layers.Reshape((4, 4, 16)),
                layers.Conv2DTranspose(16, 4, strides=2, padding="same", activation="leaky_relu"),
                layers.Conv2DTranspose(1, 4, strides=2, padding="same", activation="tanh"),
            ]
        )
        self.seeds = keras.random.SeedGenerator(SEED)

    def compile(self, **options):
        super().compile(**options)
        self.of_discriminator = keras.optimizers.Adam(1e-3)
        self.of_generator = keras.optimizers.Adam(1e-3)
        self.loss_of = keras.losses.BinaryCrossentropy(from_logits=True)

    def call(self, images):
        return self.discriminator(images)

    def train_step(self, images):
        noise = keras.random.normal((BATCH_SIZE, 16), seed=self.seeds)
        labels = tf.concat([tf.ones((BATCH_SIZE, 1)), tf.zeros((BATCH_SIZE, 1))], 0)
        both = tf.concat([self.generator(noise), images], 0)
        with tf.GradientTape() as tape:
            loss = self.loss_of(labels, self.discriminator(both))
        weights = self.discriminator.trainable_variables
        self.of_discriminator.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        with tf.GradientTape() as tape:
            made = self.discriminator(self.generator(noise))
            own_loss = self.loss_of(tf.zeros((BATCH_SIZE, 1)), made)
        weights = self.generator.trainable_variables
        self.of_generator.apply_gradients(
            zip(tape.gradient(own_loss, weights), weights, strict=True)
        )
        return {"loss": loss, "own_loss": own_loss}

    def test_step(self, images):
        return {"loss": tf.reduce_mean(self.discriminator(images))}


def ipu_scope(num_ipus: int = 1) -> AbstractContextManager:
    """The scope of a strategy for emulated IPUs."""
    from tensorflow.python import ipu  # a stock script never sees it

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = num_ipus
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy().scope()


def data_of(shape: tuple[int, ...], num_steps: int, *, vocabulary: int = 0) -> np.ndarray:
    """Inputs for a number of steps: numbers, or tokens of a vocabulary."""
    random = np.random.default_rng(SEED)
    shape = (num_steps * BATCH_SIZE, *shape)
    if vocabulary:
        return random.integers(0, vocabulary, shape, dtype="int32")
    return random.standard_normal(shape, dtype="float32")


def labels_of(num_steps: int, num_classes: int = 10) -> np.ndarray:
    """A label for each sample."""
    random = np.random.default_rng(SEED + 1)
    return random.integers(0, num_classes, num_steps * BATCH_SIZE, dtype="int32")


def in_keras(
    build: Callable[[], keras.Model],
    shape: tuple[int, ...],
    *,
    vocabulary: int = 0,
    num_classes: int = 10,
    num_ipus: int = 1,
    accumulated: int = 1,
    steps_per_execution: int = 1,
    options: Callable[[keras.Model], None] = lambda model: None,
) -> Callable[[bool, int], list[np.ndarray]]:
    """A script that fits, evaluates and predicts with a classifier; it returns the weights."""

    def run(on_ipu: bool, num_steps: int) -> list[np.ndarray]:
        keras.utils.set_random_seed(SEED)
        per_epoch = min(STEPS_PER_EPOCH, num_steps)
        x = data_of(shape, per_epoch, vocabulary=vocabulary)
        y = labels_of(per_epoch, num_classes)
        with ipu_scope(num_ipus) if on_ipu else nullcontext():
            model = build()
            of_optimizer = {}
            if accumulated > 1 and not on_ipu:
                of_optimizer = {"gradient_accumulation_steps": accumulated}
            if accumulated > 1 and on_ipu:
                model.set_gradient_accumulation_options(
                    gradient_accumulation_steps_per_replica=accumulated
                )
            if on_ipu:
                options(model)
            model.compile(
                keras.optimizers.Adam(**of_optimizer),
                "sparse_categorical_crossentropy",
                metrics=["accuracy"],
                steps_per_execution=steps_per_execution if on_ipu else 1,
            )
            model.fit(x, y, batch_size=BATCH_SIZE, epochs=num_steps // per_epoch, verbose=0)
            model.evaluate(x, y, batch_size=BATCH_SIZE, verbose=0)
            model.predict(x, batch_size=BATCH_SIZE, verbose=0)
            return model.get_weights()

    return run


def with_several_outputs(on_ipu: bool, num_steps: int) -> list[np.ndarray]:
    """As `in_keras`, with two inputs and two outputs."""
    keras.utils.set_random_seed(SEED)
    per_epoch = min(STEPS_PER_EPOCH, num_steps)
    x = [data_of((64,), per_epoch), data_of((32,), per_epoch)]
    y = {"label": labels_of(per_epoch), "value": x[0][:, :1]}
    with ipu_scope() if on_ipu else nullcontext():
        model = several_outputs()
        losses = {"label": "sparse_categorical_crossentropy", "value": "mse"}
        model.compile("adam", losses, metrics={"label": ["accuracy"], "value": ["mae"]})
        model.fit(x, y, batch_size=BATCH_SIZE, epochs=num_steps // per_epoch, verbose=0)
        model.evaluate(x, y, batch_size=BATCH_SIZE, verbose=0)
        model.predict(x, batch_size=BATCH_SIZE, verbose=0)
        return model.get_weights()


def with_gan(on_ipu: bool, num_steps: int) -> list[np.ndarray]:
    """As `in_keras`, of a GAN, whose images have no labels."""
    keras.utils.set_random_seed(SEED)
    per_epoch = min(STEPS_PER_EPOCH, num_steps)
    images = data_of((16, 16, 1), per_epoch)
    with ipu_scope() if on_ipu else nullcontext():
        model = Gan()
        model.compile()
        model.fit(images, batch_size=BATCH_SIZE, epochs=num_steps // per_epoch, verbose=0)
        model.evaluate(images, batch_size=BATCH_SIZE, verbose=0)
        model.predict(images, batch_size=BATCH_SIZE, verbose=0)
        return model.get_weights()


def with_strategy_run(on_ipu: bool, num_steps: int) -> list[np.ndarray]:
    """A function that loops over a dataset, which `strategy.run` is given once an epoch."""
    keras.utils.set_random_seed(SEED)
    x, y = data_of((64,), STEPS_PER_EPOCH), labels_of(STEPS_PER_EPOCH)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
    dataset = dataset.batch(BATCH_SIZE, drop_remainder=True)
    with ipu_scope() if on_ipu else nullcontext():
        model = mlp()
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        loss_of = keras.losses.SparseCategoricalCrossentropy()

        @tf.function
        def epoch(iterator):
            total = tf.constant(0.0)
            for _ in tf.range(STEPS_PER_EPOCH):
                x, y = next(iterator)
                with tf.GradientTape() as tape:
                    loss = loss_of(y, model(x, training=True))
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
                total += loss
            return total

        strategy = tf.distribute.get_strategy()
        iterator = iter(dataset)
        for _ in range(num_steps // STEPS_PER_EPOCH):
            strategy.run(epoch, args=(iterator,))
        return model.get_weights()


def in_a_session(on_ipu: bool, num_steps: int) -> list[np.ndarray]:
    """A perceptron of TensorFlow 1, a step for each `session.run`."""
    v1 = tf.compat.v1
    x, y = data_of((64,), STEPS_PER_EPOCH), labels_of(STEPS_PER_EPOCH)
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(SEED)
        images = v1.placeholder(tf.float32, (BATCH_SIZE, 64))
        labels = v1.placeholder(tf.int32, (BATCH_SIZE,))

        def step(images, labels):
            weights = v1.get_variable("w", (64, 128), use_resource=True)
            others = v1.get_variable("v", (128, 10), use_resource=True)
            logits = tf.matmul(tf.nn.relu(tf.matmul(images, weights)), others)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
            train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
            with tf.control_dependencies([train]):
                return tf.identity(loss)

        if on_ipu:
            from tensorflow.python import ipu

            config = ipu.config.IPUConfig()
            config.auto_select_ipus = 1
            config.configure_ipu_system()
            with ipu.scopes.ipu_scope("/device:IPU:0"):
                [loss] = ipu.ipu_compiler.compile(step, [images, labels])
        else:
            loss = step(images, labels)
        session.run(v1.global_variables_initializer())
        for index in range(num_steps):
            rows = slice(index % STEPS_PER_EPOCH * BATCH_SIZE, None)
            feeds = {images: x[rows][:BATCH_SIZE], labels: y[rows][:BATCH_SIZE]}
            session.run(loss, feeds)
        return session.run(v1.trainable_variables())


def _in_two_stages(model: keras.Model) -> None:
    model.set_pipeline_stage_assignment([0, 0, 1])
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, device_mapping=[0, 0])


def _long(build: Callable[[], keras.Model]) -> Callable[[bool, int], list[np.ndarray]]:
    """A model of `benchmarks/models.py`, to see when XLA pays."""
    workload = next(one for one in models.WORKLOADS.values() if one.build is build)
    return in_keras(
        build,
        workload.input_shape,
        vocabulary=workload.vocabulary or 0,
        num_classes=workload.num_classes,
    )


# Stock Keras has neither replicas nor pipelines: there the same model is trained as it is.
SCRIPTS: dict[str, Callable[[bool, int], list[np.ndarray]]] = {
    "mlp": in_keras(mlp, (64,)),
    "several_outputs": with_several_outputs,
    "train_step": in_keras(OwnTrainStep, (64,)),
    "lstm": in_keras(lstm, (32,), vocabulary=1000),
    "transformer": in_keras(transformer, (32, 32)),
    "cnn": in_keras(cnn, (16, 16, 1)),
    "gan": with_gan,
    "accumulation": in_keras(mlp, (64,), accumulated=4, steps_per_execution=16),
    "replicas": in_keras(mlp, (64,), num_ipus=2, steps_per_execution=8),
    "pipeline": in_keras(mlp, (64,), options=_in_two_stages, steps_per_execution=16),
    "strategy_run": with_strategy_run,
    "session": in_a_session,
    "long_mlp": _long(models.mlp),
    "long_lstm": _long(models.lstm),
    "long_transformer": _long(models.transformer),
}


class Tracing:
    """Adds up the processor time of the outermost tracings of functions."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._traced: Any = func_graph.func_graph_from_py_func

    def __enter__(self) -> "Tracing":
        self._replace(self._timed)
        return self

    def __exit__(self, *raised: object) -> None:
        self._replace(self._traced)

    def _replace(self, function: Any) -> None:
        func_graph.func_graph_from_py_func = function
        tracing_compilation.func_graph_module.func_graph_from_py_func = function

    def _timed(self, *args: Any, **options: Any) -> Any:
        self._depth += 1
        start = time.process_time()
        try:
            return self._traced(*args, **options)
        finally:
            self._depth -= 1
            if not self._depth:
                self.seconds += time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("script", choices=SCRIPTS)
    parser.add_argument("--on-ipu", action="store_true", help="run it with `ipu_keras`")
    parser.add_argument("--steps", type=int, default=48, help="of training")
    parser.add_argument("--weights", help="a file for the weights, .npz")
    args = parser.parse_args()
    if args.on_ipu:
        import ipu_keras  # noqa: F401

    with tempfile.TemporaryFile() as log:
        standard_error = os.dup(2)
        os.dup2(log.fileno(), 2)
        started, seconds = time.perf_counter(), time.process_time()
        try:
            with Tracing() as tracing:
                weights = SCRIPTS[args.script](args.on_ipu, args.steps)
            found = {
                "processor": time.process_time() - seconds,
                "wall": time.perf_counter() - started,
                "tracing": tracing.seconds,
            }
        finally:
            os.dup2(standard_error, 2)
            log.seek(0)
            written = log.read().decode(errors="replace")
            if sys.exc_info()[0]:
                print(written, file=sys.stderr)
    compiled = re.findall(r"compile time: (\d+) us", written)
    found |= {"compilation": sum(map(int, compiled)) / 1e6, "programs": len(compiled)}
    found["memory"] = fresh_process.peak_memory()
    if args.weights:
        np.savez(args.weights, *weights)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

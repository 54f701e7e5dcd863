"""Small models that stand for kinds of programs, and users who write what they are advised."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf
from keras.layers import LSTM, Conv2D, Dense, Embedding

import ipu_keras
from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.target import TARGETS, Target
from ipu_keras.report.report import Report


def hardware(tile_bytes: int) -> Target:
    """A GC200 of 64 tiles, which small models fill."""
    return TARGETS["gc200"].with_numbers(num_tiles=64, tile_bytes=tile_bytes)


@dataclass(frozen=True, kw_only=True)
class Advised:
    """A model, what it is fed, and the machine that it is for.

    Args:
        make: Makes the model, in a strategy's scope.
        inputs: Specs of one batch, each without its first axis.
        labels: The same of labels; `None` to predict.
        prepare: Sets options of the model that is made.
        num_ipus: Of the configured device.
    """

    make: Callable[[], keras.Model]
    inputs: Sequence[tf.TensorSpec]
    labels: tf.TensorSpec | None
    batch_size: int
    tile_bytes: int = 638_976
    prepare: Callable[[Any], None] = lambda model: None
    num_ipus: int = 1
    steps: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)

    def target(self) -> Target:
        return hardware(self.tile_bytes)

    def report(self, lines: Sequence[str] = ()) -> Report:
        """Profiles the model after a user has written some lines."""
        with self.written(lines) as (model, specs):
            return ipu_keras.profile(model, *specs, target=self.target(), **self.options)

    @contextlib.contextmanager
    def written(self, lines: Sequence[str] = ()) -> Iterator[tuple[keras.Model, tuple]]:
        """Yields the model and its specs, in a strategy's scope, as a user has written them."""
        writes = _Writing(lines)
        specs = writes.fed(self._specs(writes.number("batch_size", self.batch_size)))
        before = keras.config.dtype_policy()
        try:
            writes.run("keras.", keras=keras)
            config = IPUConfig()
            config.auto_select_ipus = self.num_ipus
            writes.run("config.", config=config)
            config.configure_ipu_system()
            with IPUStrategy().scope():
                model = self._made(writes.number("steps_per_execution", self.steps))
                here = {"model": model, "specs": specs, "ipu_keras": ipu_keras}
                writes.run("model.set_", target=self.target(), **here)
                yield model, specs
        finally:
            keras.config.set_dtype_policy(before)
            reset_ipu_configuration()

    def _made(self, steps: int) -> keras.Model:
        model = self.make()
        if self.labels is not None:
            loss = "mse"
            if self.labels.dtype.is_integer:
                loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
            model.compile(optimizer, loss, steps_per_execution=steps)
        self.prepare(model)
        return model

    def _specs(self, batch_size: int) -> tuple:
        def sized(spec):
            return tf.TensorSpec((batch_size, *spec.shape), spec.dtype)

        inputs = tuple(map(sized, self.inputs))
        labels = () if self.labels is None else (sized(self.labels),)
        return inputs[0] if len(inputs) == 1 else inputs, *labels


class _Writing:
    """Lines that a user writes into the script, each where it belongs."""

    def __init__(self, lines: Sequence[str]):
        self._lines = list(lines)

    def number(self, argument: str, default: int) -> int:
        """An argument of a call that the script has already."""
        for line in self._lines:
            if found := re.fullmatch(rf"model\.(?:fit|compile)\(.*\b{argument}=(\d+)\)", line):
                return int(found[1])
        return default

    def run(self, start: str, **names: Any) -> None:
        """Runs the lines that begin so."""
        for line in self._lines:
            if line.startswith(start):
                # The machine of these tests is not a configured one.
                line = line.replace("*specs", "*specs, target=target")
                exec(line.replace("(..., ", "("), names)

    def fed(self, specs: tuple) -> tuple:
        """Specs of the dataset, as the lines change it."""
        names = {"tf": tf, "keras": keras}
        batch = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), specs)
        names["dataset"] = tf.data.Dataset.from_tensors(batch)
        for line in self._lines:
            if line.startswith("dataset = "):
                exec(line, names)
        return names["dataset"].element_spec


def perceptron(*units: int, width: int = 256) -> Callable[[], keras.Model]:
    def make():
        hidden = (Dense(size, activation="relu") for size in units[:-1])
        return keras.Sequential([keras.Input((width,)), *hidden, Dense(units[-1])])

    return make


def convolutions() -> keras.Model:
    layers = []
    for filters in (16, 32):
        layers += [
            Conv2D(filters, 3, padding="same"),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
        ]
    pooled = [keras.layers.GlobalAveragePooling2D(), Dense(8)]
    return keras.Sequential([keras.Input((16, 16, 3)), *layers, *pooled])


def language_model() -> keras.Model:
    recurrent = [LSTM(64, return_sequences=True)]
    embedded = Embedding(200, 64)
    return keras.Sequential([keras.Input((12,), dtype="int32"), embedded, *recurrent, Dense(200)])


def transformer() -> keras.Model:
    tokens = keras.Input((32,), dtype="int32")
    h = Embedding(100, 64)(tokens)
    h = keras.layers.LayerNormalization()(h + keras.layers.MultiHeadAttention(4, 16)(h, h))
    h = keras.layers.LayerNormalization()(h + Dense(64)(Dense(256, activation="gelu")(h)))
    return keras.Model(tokens, Dense(100)(h))


def graph_network() -> keras.Model:
    edges, h = inputs = [keras.Input((256, 256)), keras.Input((256, 16))]
    for units in (32, 8):
        h = keras.ops.matmul(edges, Dense(units, activation="relu")(h))
    return keras.Model(inputs, h)


def autoencoder() -> keras.Model:
    image = keras.Input((32, 32, 4))
    narrow = Conv2D(16, 3, padding="same", activation="relu")(image)
    h = keras.layers.MaxPooling2D()(narrow)
    h = Conv2D(32, 3, padding="same", activation="relu")(h)
    h = keras.layers.Concatenate()([keras.layers.UpSampling2D()(h), narrow])
    return keras.Model(image, Conv2D(4, 1)(h))


class Residual(keras.Model):
    """A model with a `call` of its own."""

    def __init__(self, units: int = 512, **kwargs: Any):
        super().__init__(**kwargs)
        self.blocks = [Dense(units, activation="relu") for _ in range(4)]
        self.head = Dense(8)

    def call(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def _staged(*stages: int, steps: int) -> Callable[[Any], None]:
    def prepare(model: Any) -> None:
        model.set_pipeline_stage_assignment(list(stages))
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=steps)

    return prepare


def spec(*shape: int, dtype: str = "float32") -> tf.TensorSpec:
    return tf.TensorSpec(shape, dtype)


VECTOR, CLASS = [spec(256)], spec(dtype="int32")

MODELS = {
    "that fits": Advised(make=perceptron(64, 8), inputs=VECTOR, labels=CLASS, batch_size=256),
    "with wide layers": Advised(
        make=perceptron(1024, 1024, 1024, 8),
        inputs=VECTOR,
        labels=CLASS,
        batch_size=16,
        tile_bytes=380_000,
    ),
    "with many activations": Advised(
        make=perceptron(*[256] * 7, 8),
        inputs=VECTOR,
        labels=CLASS,
        batch_size=1024,
        tile_bytes=270_000,
    ),
    "of three layers": Advised(
        make=perceptron(1024, 1024, 8),
        inputs=VECTOR,
        labels=CLASS,
        batch_size=16,
        tile_bytes=150_000,
    ),
    "of convolutions": Advised(
        make=convolutions,
        inputs=[spec(16, 16, 3)],
        labels=CLASS,
        batch_size=64,
        tile_bytes=270_000,
    ),
    "of LSTMs": Advised(
        make=language_model,
        inputs=[spec(12, dtype="int32")],
        labels=spec(12, dtype="int32"),
        batch_size=32,
        tile_bytes=80_000,
    ),
    "of attention": Advised(
        make=transformer,
        inputs=[spec(32, dtype="int32")],
        labels=spec(32, dtype="int32"),
        batch_size=16,
        tile_bytes=110_000,
    ),
    "of a graph": Advised(
        make=graph_network,
        inputs=[spec(256, 256), spec(256, 16)],
        labels=spec(256, 8),
        batch_size=8,
        steps=32,
    ),
    "of an autoencoder": Advised(
        make=autoencoder,
        inputs=[spec(32, 32, 4)],
        labels=spec(32, 32, 4),
        batch_size=16,
        tile_bytes=170_000,
    ),
    "that predicts": Advised(
        make=perceptron(2048, 2048, 8),
        inputs=VECTOR,
        labels=None,
        batch_size=64,
        tile_bytes=250_000,
    ),
    "with a call of its own": Advised(
        make=Residual,
        inputs=[spec(512)],
        labels=CLASS,
        batch_size=64,
        tile_bytes=200_000,
    ),
    "in stages": Advised(
        make=perceptron(*[256] * 5, 8),
        inputs=VECTOR,
        labels=CLASS,
        batch_size=256,
        tile_bytes=150_000,
        prepare=_staged(0, 0, 0, 1, 1, 1, steps=8),
        num_ipus=2,
        steps=8,
    ),
    "in stages of a layer": Advised(
        make=perceptron(1024, 1024, width=1024),
        inputs=[spec(1024)],
        labels=spec(1024),
        batch_size=2,
        tile_bytes=180_000,
        prepare=_staged(0, 1, steps=4),
        num_ipus=2,
        steps=4,
    ),
}

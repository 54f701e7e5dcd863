"""How long whole answers take: whether a model fits, what would help, and stages of a pipeline.

Run `python benchmarks/whole_answers.py`, with names to choose some. Each well-known network is
asked about in a process of its own: `profile`, whose fixes are searched for, and
`suggest_pipeline` for as many stages as its best fix has, or two. Then the first advice is written
into the model, as a user would, which is profiled again: it fits or not. Seconds are of the
processor, all threads together. Nothing is asserted; the goal is printed below.
"""

import argparse
import contextlib
import io
import os
import pathlib
import resource
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# The users who write what they are advised are those of the tests.
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))

import keras
import tensorflow as tf
from advised_models import Advised, spec  # type: ignore[import-not-found]  # of the tests
from keras import layers
from model_scaling import in_a_fresh_process, seconds
from rich.console import Console
from rich.table import Table

import ipu_keras
from ipu_keras.machine.target import TARGETS, Target

GOAL_SECONDS = 30


class Network(Advised):
    """A network on a whole IPU."""

    def target(self) -> Target:
        return TARGETS["gc200"]


def application(make: Callable[..., keras.Model]) -> keras.Model:
    return make(weights=None, classifier_activation=None)


class Positions(layers.Layer):
    """Adds a trained vector for each position."""

    def build(self, input_shape):
        self.table = self.add_weight(shape=input_shape[1:], name="table")

    def call(self, inputs):
        return inputs + self.table


def encoded(h, depth: int, num_heads: int, **attention):
    """What blocks of attention and of two dense layers make of embedded positions."""
    width = h.shape[-1]
    for _ in range(depth):
        normalized = layers.LayerNormalization()(h)
        attend = layers.MultiHeadAttention(num_heads, width // num_heads)
        h = h + attend(normalized, normalized, **attention)
        hidden = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(h))
        h = h + layers.Dense(width)(hidden)
    return layers.LayerNormalization()(h)


def gpt2_small() -> keras.Model:
    tokens = keras.Input((1024,), dtype="int32")
    h = Positions()(layers.Embedding(50257, 768)(tokens))
    h = encoded(h, 12, 12, use_causal_mask=True)
    return keras.Model(tokens, layers.Dense(50257, use_bias=False)(h))


def vit_b16() -> keras.Model:
    image = keras.Input((224, 224, 3))
    patches = layers.Reshape((196, 768))(layers.Conv2D(768, 16, strides=16)(image))
    h = encoded(Positions()(patches), 12, 12)
    return keras.Model(image, layers.Dense(1000)(layers.GlobalAveragePooling1D()(h)))


def unet() -> keras.Model:
    def twice(h, filters: int):
        for _ in range(2):
            h = layers.Conv2D(filters, 3, padding="same", activation="relu")(h)
        return h

    image = h = keras.Input((512, 512, 1))
    passed = []
    for filters in (64, 128, 256, 512):
        passed.append(twice(h, filters))
        h = layers.MaxPooling2D()(passed[-1])
    h = twice(h, 1024)
    for skipped in reversed(passed):
        filters = skipped.shape[-1]
        h = layers.Conv2DTranspose(filters, 2, strides=2)(h)
        h = twice(layers.Concatenate()([skipped, h]), filters)
    return keras.Model(image, layers.Conv2D(2, 1)(h))


def recurrent_language_model() -> keras.Model:
    """The large model of Zaremba and others on the Penn Treebank."""
    words = keras.Input((35,), dtype="int32")
    h = layers.Embedding(10_000, 1500)(words)
    for _ in range(2):
        h = layers.LSTM(1500, return_sequences=True)(h)
    return keras.Model(words, layers.Dense(10_000)(h))


def graph_network() -> keras.Model:
    """Two graph convolutions over Cora."""
    edges, h = inputs = [keras.Input((2708, 2708)), keras.Input((2708, 1433))]
    for units in (16, 7):
        h = keras.ops.matmul(edges, layers.Dense(units)(h))
    return keras.Model(inputs, h)


def network(
    make: Callable[[], keras.Model],
    inputs: Sequence[tf.TensorSpec],
    batch_size: int,
    *labels: int,
) -> Network:
    classes = spec(*labels, dtype="int32")
    return Network(make=make, inputs=inputs, labels=classes, batch_size=batch_size)


IMAGE = [spec(224, 224, 3)]
APPLICATIONS = keras.applications
NETWORKS = {
    "EfficientNet-B0": network(partial(application, APPLICATIONS.EfficientNetB0), IMAGE, 32),
    "ResNet-50": network(partial(application, APPLICATIONS.ResNet50), IMAGE, 8),
    "DenseNet-121": network(partial(application, APPLICATIONS.DenseNet121), IMAGE, 8),
    "GPT-2 small": network(gpt2_small, [spec(1024, dtype="int32")], 1, 1024),
    "ViT-B/16": network(vit_b16, IMAGE, 8),
    "U-Net": network(unet, [spec(512, 512, 1)], 1, 512, 512),
    "LSTM": network(recurrent_language_model, [spec(35, dtype="int32")], 20, 35),
    "graph": network(graph_network, [spec(2708, 2708), spec(2708, 1433)], 1, 2708),
}


def row_of(name: str) -> list[str]:
    """A line of the table, computed in a process that has done nothing else."""
    advised = NETWORKS[name]
    with advised.written() as (model, specs), contextlib.redirect_stdout(io.StringIO()):
        profile = partial(ipu_keras.profile, model, *specs, target=advised.target())
        profiling, report = seconds(profile, time.process_time)
        best = report.fixes[0] if report.fixes else None
        num_stages = best.changes.get("pipeline_stages", 2) if best else 2
        suggest = partial(ipu_keras.suggest_pipeline, model, num_stages, *specs)
        suggesting, _ = seconds(partial(suggest, target=advised.target()), time.process_time)
    # Linux counts in units of 1024 bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    followed = "" if best is None else advised.report(report.next_steps[0].lines).verdict
    times = profiling, suggesting, profiling + suggesting
    return [
        name,
        *(f"{each:.1f}" for each in times),
        f"{peak / 1e9:.1f}",
        report.verdict,
        "" if best is None else best.name,
        followed,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NETWORKS)}; all by default")
    names = parser.parse_args().names or list(NETWORKS)
    for name in names:
        if name not in NETWORKS:
            parser.error(f"there is no network {name!r}; there are {', '.join(NETWORKS)}")
    table = Table(title="Answers about training, in seconds", title_justify="left")
    for column in ("network", "profile", "suggest", "in all", "peak GB"):
        table.add_column(column, justify="left" if column == "network" else "right")
    for column in ("verdict", "first advice", "followed"):
        table.add_column(column)
    for name in names:
        table.add_row(*in_a_fresh_process(partial(row_of, name)))
    console = Console(width=150)
    console.print(table)
    console.print(f"Goal: ≤ {GOAL_SECONDS} s in all.")
    load = os.getloadavg()[1]
    console.print(
        f"Load of the machine in the last 5 minutes: {load:.1f} on {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()

"""Training of BERT, whose configuration on Bow pods is published, written in three ways.

Run `python benchmarks/bert.py`, with `base` or `large` and `detailed`, `batched` or `plain` to
choose some. Each ran on four IPUs a replica. In detail it is what Graphcore's files have:
query, key and value as one product, layers of IPUs, outlined functions, flattened rows, labels as
vectors, and LAMB with a state in float32. In the batched way the head keeps the axis of the batch
and labels are numbers. In the plain way the same network consists of Keras's own layers, loss and
optimizer, with the same stages, checkpoints and options, which nobody has run. Each is profiled in
a process of its own; if it may not fit, what would help takes most of the time.
"""

import argparse
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf
from keras import layers
from model_scaling import in_a_fresh_process, seconds
from rich.console import Console
from rich.table import Table

import ipu_keras
from ipu_addons.keras.layers import Dropout
from ipu_addons.keras.layers import LayerNormalization as IpuLayerNormalization
from ipu_addons.keras.optimizers import LAMBIpuOptimizer
from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras import PipelineStage
from ipu_keras.keras.layers import RecomputationCheckpoint
from ipu_keras.ops.functional_ops import outlined_function
from ipu_keras.ops.nn_ops import gelu
from ipu_keras.pipelining_ops import PipelineStageOptions, RecomputationMode
from ipu_keras.report.report import Report

# The first phase of pretraining.
LENGTH = 128
MASKED = 20
RATE = 0.1
REPLICAS = 4
# IPUs of the stages: the head is beside the table that it shares with the embedding.
DEVICES = [0, 1, 2, 3, 0]


@dataclass(frozen=True, kw_only=True)
class Bert:
    """A network, and how it was trained.

    Args:
        layers_by_stage: Encoder layers of each stage but the head.
        memory_proportions: Of products, on each IPU.
        published: Sequences a second of a Bow Pod16.
    """

    width: int
    num_heads: int
    layers_by_stage: tuple[int, ...]
    micro_batch: int
    accumulation: int
    memory_proportions: tuple[float, ...]
    published: int
    vocabulary: int = 30_400


NETWORKS = {
    "base": Bert(
        width=768,
        num_heads=12,
        layers_by_stage=(0, 4, 4, 4),
        micro_batch=32,
        accumulation=510,
        memory_proportions=(0.28, 0.26, 0.28, 0.28),
        published=15_173,
    ),
    "large": Bert(
        width=1024,
        num_heads=16,
        layers_by_stage=(3, 7, 7, 7),
        micro_batch=8,
        accumulation=2040,
        memory_proportions=(0.1, 0.19, 0.2, 0.25),
        published=4_527,
    ),
}


class Words(layers.Embedding):
    """A table that finds rows of words, or words by their rows."""

    def call(self, inputs, reverse=False):
        if reverse:
            return tf.matmul(inputs, self.embeddings, transpose_b=True)
        return super().call(inputs)

    def compute_output_spec(self, inputs, reverse=False):
        shape = (
            (*inputs.shape[:-1], self.input_dim) if reverse else (*inputs.shape, self.output_dim)
        )
        return keras.KerasTensor(shape, self.compute_dtype)


class FlatWords(Words):
    """The same, by one product for all rows."""

    def call(self, inputs, reverse=False):
        if reverse:
            flat = super().call(tf.reshape(inputs, (-1, self.output_dim)), reverse=True)
            return tf.reshape(flat, (*inputs.shape[:-1], self.input_dim))
        return super().call(inputs)


class Positions(layers.Layer):
    """Adds a trained vector for each position."""

    def build(self, input_shape):
        self.table = self.add_weight(shape=input_shape[1:], name="table")

    def call(self, inputs):
        return inputs + self.table


class Outlined(layers.Dense):
    """A dense layer over flattened rows whose code is on an IPU once for all of its shape."""

    def call(self, inputs):
        def dense(x, kernel, *bias):
            y = self.activation(sum(bias, tf.matmul(tf.reshape(x, (-1, x.shape[-1])), kernel)))
            return tf.reshape(y, (*x.shape[:-1], self.units))

        weights = map(tf.convert_to_tensor, self.weights)
        return outlined_function(dense, name="dense")(inputs, *weights)


class SelfAttention(layers.Layer):
    """Attention in heads, whose query, key and value are one product; outlined as well."""

    def __init__(self, num_heads: int):
        super().__init__()
        self.num_heads = num_heads

    def build(self, input_shape):
        width = input_shape[-1]
        self.kernel = self.add_weight(shape=(width, 3 * width), name="kernel")

    def call(self, inputs):
        batch, length, width = inputs.shape
        of_head = width // self.num_heads

        def attention(x, kernel):
            parts = tf.reshape(tf.matmul(x, kernel), (batch, length, 3, self.num_heads, of_head))
            query, key, value = tf.unstack(tf.transpose(parts, (2, 0, 3, 1, 4)))
            scores = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * of_head**-0.5)
            return tf.reshape(tf.transpose(scores @ value, (0, 2, 1, 3)), (batch, length, width))

        kernel = tf.convert_to_tensor(self.kernel)
        return outlined_function(attention, name="attention")(inputs, kernel)


class Masked(layers.Layer):
    """Takes the masked positions of each sequence."""

    def call(self, inputs, positions):
        return tf.gather(inputs, positions, batch_dims=1)


class FlatMasked(layers.Layer):
    """Takes them from one list of all positions."""

    def call(self, inputs, positions):
        batch, length, width = inputs.shape
        rows = tf.reshape(positions + length * tf.range(batch)[:, None], [-1])
        found = tf.gather(tf.reshape(inputs, (-1, width)), rows)
        return tf.reshape(found, (*positions.shape, width))


# Unless it is told, the layer of IPUs normalizes float32.
LayerNormalization = partial(IpuLayerNormalization, "float16")


def detailed_layer(h, num_heads: int):
    width = h.shape[-1]
    attended = Outlined(width, use_bias=False)(SelfAttention(num_heads)(h))
    h = LayerNormalization()(h + Dropout(RATE)(attended))
    wide = Outlined(4 * width, activation=gelu)(h)
    return LayerNormalization()(h + Dropout(RATE)(Outlined(width)(wide)))


def plain_layer(h, num_heads: int):
    width = h.shape[-1]
    attended = layers.MultiHeadAttention(num_heads, width // num_heads)(h, h)
    h = layers.LayerNormalization()(h + layers.Dropout(RATE)(attended))
    wide = layers.Dense(4 * width, activation="gelu")(h)
    return layers.LayerNormalization()(h + layers.Dropout(RATE)(layers.Dense(width)(wide)))


def one_hot_loss(labels, logits):
    """The mean over masked words; there are none where the label is 0."""
    labels = tf.cast(tf.reshape(labels, [-1]), tf.int32)
    chances = tf.nn.log_softmax(tf.reshape(logits, (-1, logits.shape[-1])))
    found = -tf.reduce_sum(chances * tf.one_hot(labels, chances.shape[1], dtype=chances.dtype), 1)
    is_there = tf.cast(labels != 0, found.dtype)
    sums = tf.reduce_sum(found * is_there), tf.reduce_sum(is_there)
    return tf.cast(sums[0], tf.float32) / tf.cast(sums[1], tf.float32)


def ipu_lamb() -> keras.optimizers.Optimizer:
    return LAMBIpuOptimizer(
        1e-4,
        weight_decay_rate=0.01,
        exclude_from_layer_adaptation=["bias", "beta", "gamma"],
        exclude_from_weight_decay=["bias", "beta"],
        m_dtype=tf.float32,
        v_dtype=tf.float32,
        optimizer_compute_precisions=(tf.float32, tf.float16),
    )


@dataclass(frozen=True, kw_only=True)
class Way:
    """What a network is written with."""

    words: type[Words]
    layer: Callable
    normalization: Callable[[], layers.Layer]
    dropout: type[layers.Layer]
    masked: type[layers.Layer]
    optimizer: Callable[[], keras.optimizers.Optimizer]
    loss: Callable


_DETAILED = Way(
    words=FlatWords,
    layer=detailed_layer,
    normalization=LayerNormalization,
    dropout=Dropout,
    masked=FlatMasked,
    optimizer=ipu_lamb,
    loss=one_hot_loss,
)
_BATCHED = replace(
    _DETAILED,
    words=Words,
    masked=Masked,
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
WAYS = {
    "detailed": _DETAILED,
    "batched": _BATCHED,
    "plain": replace(
        _BATCHED,
        layer=plain_layer,
        normalization=layers.LayerNormalization,
        dropout=layers.Dropout,
        optimizer=partial(keras.optimizers.Lamb, 1e-4),
    ),
}


def pipelined(bert: Bert, way: Way) -> keras.Model:
    """The model in its stages, compiled; made in a strategy's scope."""
    shapes = (bert.micro_batch, LENGTH), (bert.micro_batch, MASKED)
    words, positions = inputs = [keras.Input(batch_shape=s, dtype="int32") for s in shapes]
    table = way.words(bert.vocabulary, bert.width)
    with PipelineStage(0):
        h = way.normalization()(Positions()(table(words)))
        h = way.dropout(RATE)(h)
    for stage, num_layers in enumerate(bert.layers_by_stage):
        with PipelineStage(stage):
            for _ in range(num_layers):
                h = RecomputationCheckpoint()(way.layer(h, bert.num_heads))
    with PipelineStage(len(bert.layers_by_stage)):
        logits = table(way.masked()(h, positions), reverse=True)
    model = keras.Model(inputs, logits)
    options = [
        PipelineStageOptions(
            matmul_options={
                "availableMemoryProportion": str(bert.memory_proportions[device]),
                "partialsType": "half",
            }
        )
        for device in DEVICES
    ]
    model.set_pipelining_options(
        bert.accumulation,
        device_mapping=DEVICES,
        offload_weight_update_variables=True,
        recomputation_mode=RecomputationMode.RecomputeAndBackpropagateInterleaved,
        forward_propagation_stages_poplar_options=options,
        backward_propagation_stages_poplar_options=options,
    )
    model.compile(way.optimizer(), way.loss, steps_per_execution=bert.accumulation)
    return model


def report_of(bert: Bert, way: Way) -> Report:
    """What a profile says of a network that is written in a way."""
    config = IPUConfig()
    config.auto_select_ipus = REPLICAS * 4
    config.allow_recompute = True
    config.optimizations.minimum_remote_tensor_size = 50_000
    config.optimizations.maximum_cross_replica_sum_buffer_size = 10 * 2**20
    config.configure_ipu_system()
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float16")
    try:
        with IPUStrategy().scope():
            model = pipelined(bert, way)
        sizes = LENGTH, MASKED, MASKED
        words, *masked = [tf.TensorSpec((bert.micro_batch, size), tf.int32) for size in sizes]
        return ipu_keras.profile(model, (words, masked[0]), masked[1], target="bow")
    finally:
        keras.config.set_dtype_policy(policy)
        reset_ipu_configuration()


def row_of(network: str, way: str) -> list[str]:
    """A line of the table, computed in a process that has done nothing else."""
    bert = NETWORKS[network]
    taken, report = seconds(lambda: report_of(bert, WAYS[way]), time.process_time)
    # Linux counts in units of 1024 bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    memory = report.model.memory
    return [
        network,
        way,
        report.verdict,
        f"{memory.max_tile_bytes / report.model.target.tile_bytes:.1%}",
        f"{report.samples_per_second:,.0f}",
        f"{report.samples_per_second / bert.published:.2f}",
        f"{taken:.1f}",
        f"{peak / 1e9:.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    known = [*NETWORKS, *WAYS]
    parser.add_argument("names", nargs="*", help=f"of {', '.join(known)}; all by default")
    names = parser.parse_args().names
    for name in names:
        if name not in known:
            parser.error(f"there is no network or way {name!r}; there are {', '.join(known)}")
    table = Table(title="BERT on a Bow Pod16", title_justify="left")
    for column in ("network", "written"):
        table.add_column(column)
    for column in (
        "verdict",
        "fullest tile",
        "sequences/s",
        "of published",
        "processor s",
        "peak GB",
    ):
        table.add_column(column, justify="right")
    for network in [name for name in NETWORKS if name in names] or NETWORKS:
        for way in [name for name in WAYS if name in names] or WAYS:
            table.add_row(*in_a_fresh_process(partial(row_of, network, way)))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

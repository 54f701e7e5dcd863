"""What the model's figures have in common, whatever the program is."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from hlo_graphs import training_step
from keras import layers

from ipu_keras import popart, profile
from ipu_keras.cost.passes import model_graph
from ipu_keras.machine.target import TARGETS

GC200 = TARGETS["gc200"]

# poplibs chooses plans by their estimated time: a larger product may get one that takes fewer
# bytes. Of the steps below, none loses more than 0.3 %.
BYTES_LOST = 0.004
# That estimate has no syncs and launches. Products of 16 x 16 x 16 alone take longer on more tiles:
# 921 cycles on one, and 969 on the 256 over which it spreads them.
SPREAD_TOO_FAR = 16
CYCLES_LOST = 0.04


def figures(model):
    """Cycles of a step, bytes of all tiles and of the fullest one."""
    by_tile = model.memory.peak_by_tile
    return np.array([model.compute_cycles, by_tile.sum(), by_tile.max()])


def step_figures(num_layers, batch, width, target=GC200):
    # Sizes that fill the matrix unit. To poplibs' estimate padding is cheap, but measured layers of
    # 3 channels say what its copies take: a product over 7 takes twice as long as one over 8.
    return figures(model_graph("step", training_step(num_layers, batch=batch, width=width), target))


SIZES = list(itertools.product((1, 2), (16, 64, 256), (16, 64, 256)))


@pytest.mark.parametrize(("name", "factor"), [("layer", 1), ("batch", 2), ("width", 2)])
def test_larger_steps_take_no_less(name, factor):
    for num_layers, batch, width in SIZES:
        smaller = step_figures(num_layers, batch, width)
        if name == "layer":
            larger = step_figures(num_layers + factor, batch, width)
        elif name == "batch":
            larger = step_figures(num_layers, factor * batch, width)
        else:
            larger = step_figures(num_layers, batch, factor * width)
        assert larger[0] >= smaller[0], (num_layers, batch, width)
        assert (larger >= (1 - BYTES_LOST) * smaller).all(), (num_layers, batch, width)


def test_more_tiles_take_no_longer():
    targets = [GC200.with_numbers(num_tiles=1472 // part) for part in (64, 16, 4, 2, 1)]
    for size in SIZES:
        cycles = [step_figures(*size, target)[0] for target in targets]
        for fewer, more in itertools.pairwise(cycles):
            lost = CYCLES_LOST if max(size[1:]) <= SPREAD_TOO_FAR else 0
            assert more <= (1 + lost) * fewer, size
        assert min(cycles[1:]) < cycles[0] or lost


def encoder():
    """An encoder layer's training step."""
    inputs = keras.Input((16,), dtype="int32")
    x = layers.Embedding(64, 32)(inputs)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 16)(x, x))
    hidden = layers.Dense(64, activation="gelu")(x)
    x = layers.LayerNormalization()(x + layers.Dense(32)(hidden))
    model = keras.Model(inputs, layers.Dense(4)(x))
    model.compile("sgd", "mse")
    return profile(model, tf.TensorSpec((2, 16), tf.int32), tf.TensorSpec((2, 16, 4)))


def encoder_text():
    """All figures of `encoder` in their order; names of layers count a process's layers."""
    report = encoder()
    rows = [(r.family, r.cycles, r.flops, r.exchange_bytes, r.temporary_bytes) for r in report.rows]
    memory = report.model.memory
    return f"{rows} {memory.live_by_position.tolist()} {memory.peak_by_tile.tolist()}\n"


def test_processes_agree(run_forked):
    """Hashes of texts, and so the order of sets, are a process's own."""
    script = "from test_cost_properties import encoder_text; print(encoder_text(), end='')"
    assert run_forked(script).stdout == encoder_text()


def test_rows_add_up():
    report = encoder()
    assert sum(row.cycles for row in report.rows) == report.model.compute_cycles
    assert sum(group.cycles for group in report.by("layer")) == report.model.compute_cycles
    memory = report.model.memory
    assert sum(memory.bytes_by_category.values()) == memory.peak_by_tile.sum()


def trained(outputs, inputs, shape):
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse")
    return profile(model, tf.TensorSpec((8, *inputs.shape[1:])), tf.TensorSpec((8, *shape)))


def head(way):
    """500 logits of each of 8 x 32 positions."""
    inputs = keras.Input((32, 64))
    if way == "einsum":
        outputs = layers.EinsumDense("abc,cd->abd", (32, 500), bias_axes="d")(inputs)
    elif way == "flattened":
        flat = keras.ops.reshape(inputs, (-1, 64))
        outputs = keras.ops.reshape(layers.Dense(500)(flat), (-1, 32, 500))
    else:
        outputs = layers.Dense(500)(inputs)
    return trained(outputs, inputs, (32, 500))


def blocks(way):
    """Four residual blocks with the same weights."""
    up, down = tf.Variable(tf.zeros((128, 512))), tf.Variable(tf.zeros((512, 128)))

    def block(x):
        y = x + tf.nn.gelu(x @ up) @ down
        return y - tf.reduce_mean(y, axis=-1, keepdims=True)

    def function(x):
        if way == "loop":
            return tf.while_loop(
                lambda k, _: k < 4, lambda k, x: (k + 1, block(x)), (0, x), maximum_iterations=4
            )[1]
        for _ in range(4):
            x = block(x)
        return x

    return profile(function, tf.TensorSpec((64, 128)))


UNITS = (256, 512, 512, 10)


def perceptron(way):
    """A classifier's training step with a batch of 64."""
    return keras_perceptron() if way == "Keras" else popart_perceptron()


def keras_perceptron():
    model = keras.Sequential([keras.Input(UNITS[:1])])
    for units in UNITS[1:-1]:
        model.add(layers.Dense(units, activation="relu"))
    model.add(layers.Dense(UNITS[-1], activation="softmax"))
    model.compile(keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy")
    return profile(model, tf.TensorSpec((64, UNITS[0])), tf.TensorSpec((64,), tf.int32))


def popart_perceptron():
    builder = popart.Builder()
    x = images = builder.addInputTensor(popart.TensorInfo("FLOAT", [64, UNITS[0]]))
    labels = builder.addInputTensor(popart.TensorInfo("INT32", [64]))
    for taken, made in itertools.pairwise(UNITS):
        if x != images:
            x = builder.aiOnnx.relu([x])
        shapes = (taken, made), (made,)
        weights = [builder.addInitializedInputTensor(np.zeros(s, np.float32)) for s in shapes]
        x = builder.aiOnnx.gemm([x, *weights])
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([x], axis=1), labels])
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, {loss: popart.AnchorReturnType("Final")}),
        loss,
        popart.SGD({"defaultLearningRate": (0.01, False)}),
        popart.DeviceManager().createIpuModelDevice({}),
    )
    session.prepareDevice()
    session.weightsFromHost()
    feeds = {images: np.zeros((64, UNITS[0]), np.float32), labels: np.zeros(64, np.int32)}
    session.run(popart.PyStepIO(feeds, session.initAnchorArrays()))
    return session.getReport()


@pytest.mark.parametrize(
    ("program", "way", "other"),
    [
        (head, "batched", "flattened"),
        (head, "batched", "einsum"),
        (blocks, "loop", "layers"),
        (perceptron, "Keras", "PopART"),
    ],
)
def test_ways_to_write_a_program_cost_the_same(program, way, other):
    found, expected = figures(program(other).model), figures(program(way).model)
    np.testing.assert_allclose(found, expected, rtol=0.05)

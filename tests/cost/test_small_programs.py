"""Which programs fit for certain, by sizes counted by hand."""

import keras
import pytest
import tensorflow as tf
from keras import layers

from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.small_programs import is_small
from ipu_keras.ir import Graph, Op, TensorSpec
from ipu_keras.machine.target import TARGETS
from ipu_keras.tracing import graph_of, traced_for_xla
from ipu_keras.tracing.hlo import hlo_graph

# 10 tiles of 1,000 bytes: all values together may have 6,000; of 3,200 bytes of code, an operation
# takes 32.
TARGET = TARGETS["gc200"].with_numbers(num_tiles=10, tile_bytes=1000, code_region_bytes=3200)


def spec(*shape, dtype="float32"):
    return TensorSpec(shape, dtype)


def op(name, kind, *outputs, inputs=(), body=()):
    return Op(name, kind, outputs, inputs=inputs, body=body)


def small(*ops, variables=(), functions=None, **options):
    return is_small(Graph("step", ops, functions or {}), variables, TARGET, **options)


def test_all_values_count():
    half = op("a", "MatMul", spec(500)), op("b", "Relu", spec(500))
    assert small(*half, variables=[spec(499)])
    assert small(*half, variables=[spec(500)])
    assert not small(*half, variables=[spec(501)])
    assert small(*half, op("c", "Relu", spec(1000, dtype="float16")))
    assert not small(*half, op("c", "Relu", spec(1001, dtype="float16")))


def test_an_accumulated_gradient_is_held_besides():
    # Each variable with its accumulator, gradient and update.
    assert small(variables=[spec(375)], accumulates=True)
    assert not small(variables=[spec(376)], accumulates=True)


def test_values_of_stages_wait():
    value = op("a", "MatMul", spec(250))
    assert small(value, variables=[spec(500)], num_stages=2)
    assert not small(value, variables=[spec(501)], num_stages=2)


def test_instructions_count():
    nothing = [op(f"n{k}", "NoOp") for k in range(100)]
    assert small(*nothing)
    assert not small(*nothing, op("more", "NoOp"))


def test_shapes_that_are_not_known():
    assert small(op("axes", "BroadcastGradientArgs", spec(-1, dtype="int32")))
    assert not small(op("rows", "Where", spec(-1, 2, dtype="int64")))
    assert small(op("handle", "Placeholder", spec(dtype="resource")))


def loop(*specs):
    body = Graph("body", (op("given", "Placeholder", spec(1000)), op("x", "Mul", spec(10))))
    return op("loop", "While", *specs, body=("body",)), {"body": body}


def test_loops_run_over_their_longest_axis():
    # 400 bytes of results, and 40 in each turn.
    whole, functions = loop(spec(100))
    assert small(whole, variables=[spec(400)], functions=functions)
    assert not small(whole, variables=[spec(401)], functions=functions)
    called = op("call", "PartitionedCall", spec(100), body=("body",))
    assert small(called, variables=[spec(1390)], functions=functions)


@pytest.mark.parametrize(
    "ops",
    [
        [
            op("sequence", "Mul", spec(100, 1)),
            op("list", "TensorListFromTensor", spec(dtype="variant"), inputs=("sequence",)),
        ],
        [op("stack", "TensorListStack", spec(100, 1), inputs=("loop",))],
    ],
    ids=["read", "written"],
)
def test_loops_run_over_lists(ops):
    whole, functions = loop(spec(dtype="variant"))
    assert small(whole, *ops, variables=[spec(400)], functions=functions)
    assert not small(whole, *ops, variables=[spec(401)], functions=functions)


def convolutions():
    x = image = keras.Input((32, 32, 3))
    for filters in (32, 64):
        x = layers.Conv2D(filters, 3, padding="same")(x)
        x = layers.MaxPooling2D()(layers.ReLU()(layers.BatchNormalization()(x)))
    return keras.Model(image, layers.Dense(10)(layers.Flatten()(x)))


def products():
    wide = [layers.Dense(1024, activation="relu") for _ in range(3)]
    return keras.Sequential([keras.Input((1024,)), *wide])


def attention():
    x = tokens = keras.Input((64, 64))
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 16)(x, x))
        x = x + layers.Dense(64)(layers.Dense(256, activation="gelu")(x))
    return keras.Model(tokens, layers.Dense(10)(x))


def recurrence():
    return keras.Sequential([keras.Input((64, 32)), layers.LSTM(64, return_sequences=True)])


def elements():
    return keras.Sequential(
        [keras.Input((4096,)), layers.LayerNormalization(), layers.Activation("tanh")]
    )


@pytest.mark.parametrize(
    ("build", "batch_size"),
    [(convolutions, 128), (products, 2048), (attention, 64), (recurrence, 64), (elements, 1024)],
)
def test_what_is_small_fits(build, batch_size):
    """Twice these batches would not be small; by a model, there is room to spare."""
    model = build()
    model.compile(keras.optimizers.Adam(), "mse")
    model.optimizer.build(model.trainable_variables)

    def step(x, y):
        with traced_for_xla():
            return model.train_step((x, y))

    shapes = [(batch_size, *t.shape[1:]) for t in (model.inputs[0], model.outputs[0])]
    specs = map(tf.TensorSpec, shapes)
    concrete = tf.function(step, autograph=False).get_concrete_function(*specs)
    variables = [TensorSpec(tuple(v.shape), v.dtype.name) for v in concrete.graph.variables]
    assert is_small(graph_of(concrete), variables, TARGETS["gc200"])
    memory = model_graph("step", hlo_graph(concrete), TARGETS["gc200"]).memory
    assert memory.fits
    assert memory.max_tile_bytes < 0.6 * memory.tile_bytes

"""Which programs fit for certain, by sizes counted by hand."""

import math

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


def target_for(num_types, num_sets, values=6000):
    """A target of 10 tiles with room for bytes of values, beside types of vertices and sets.

    Eight more types are shared. A type takes 512 bytes of code, a compute set 24, as many for a
    vertex, and 48 for its exchange. Products may take 0.6 of each tile.
    """
    besides = (num_types + 8) * 512 + num_sets * (24 + 48 + 24)
    return TARGETS["gc200"].with_numbers(
        num_tiles=10,
        tile_bytes=math.ceil((values / 10 + besides) / 0.4),
        memory_element_bytes=0,
        stack_bytes=0,
    )


SIZES = ("tile_bytes", "code_region_bytes")


def spec(*shape, dtype="float32"):
    return TensorSpec(shape, dtype)


def op(name, kind, *outputs, inputs=(), body=()):
    return Op(name, kind, outputs, inputs=inputs, body=body)


def small(target, *ops, variables=(), functions=None, **options):
    return is_small(Graph("step", ops, functions or {}), variables, target, **options)


def test_all_values_count():
    target = target_for(num_types=2, num_sets=4)  # of a product, three
    half = op("a", "MatMul", spec(500)), op("b", "Relu", spec(500))
    assert small(target, *half, variables=[spec(499)])
    assert small(target, *half, variables=[spec(500)])
    assert not small(target, *half, variables=[spec(501)])
    target = target_for(num_types=2, num_sets=5)
    assert small(target, *half, op("c", "Relu", spec(1000, dtype="float16")))
    assert not small(target, *half, op("c", "Relu", spec(1001, dtype="float16")))


def test_other_names_of_values_do_not_count():
    target = target_for(num_types=0, num_sets=0)
    read = op("read", "ReadVariableOp", spec(1500)), op("same", "Identity", spec(1500))
    assert small(target, *read, variables=[spec(1500)])


def test_what_nothing_takes_does_not_count():
    """As of what the host replaced; what writes and what is returned is there for itself."""
    used = op("used", "Relu", spec(500))
    write = Op("write", "AssignVariableOp", inputs=("used",), stateful=True)
    ops = used, op("replaced", "Sin", spec(10**6), inputs=("used",)), write
    target = target_for(num_types=2, num_sets=2)
    for results in (("used:0",), ("write",)):
        graph = Graph("step", ops, results=results)
        assert is_small(graph, [spec(1000)], target)
        assert not is_small(graph, [spec(1001)], target)
    assert not is_small(Graph("step", ops, results=("replaced",)), [], target)


def test_an_accumulated_gradient_is_held_besides():
    # Each variable with its accumulator, gradient and update.
    target = target_for(num_types=0, num_sets=0)
    assert small(target, variables=[spec(375)], accumulates=True)
    assert not small(target, variables=[spec(376)], accumulates=True)


def test_values_of_stages_wait():
    target = target_for(num_types=1, num_sets=3)
    value = op("a", "MatMul", spec(250))
    assert small(target, value, variables=[spec(500)], num_stages=2)
    assert not small(target, value, variables=[spec(501)], num_stages=2)


def test_instructions_count():
    """Nine types of vertices, and a hundred sets."""
    target = target_for(1, 101).with_numbers(code_region_bytes=9 * 512 + 100 * 72)
    relus = [op(f"n{k}", "Relu") for k in range(100)]
    assert small(target, *relus)
    assert small(target, *relus, op("nothing", "NoOp"))
    assert not small(target, *relus, op("more", "Relu"))


@pytest.mark.parametrize(("proportion", "size"), [(0.2, 3000), (0.6, 1500), (0.9, 375)])
def test_products_may_take_a_proportion_of_memory(proportion, size):
    """Of 1,500 bytes of each of ten tiles, besides 4,096 bytes of code."""
    target = target_for(0, 0)
    target = target.with_numbers(tile_bytes=math.ceil((size * 0.4 + 4096) / (1 - proportion)))
    assert small(target, variables=[spec(size)], memory_proportion=proportion)
    assert not small(target, variables=[spec(size + 1)], memory_proportion=proportion)
    assert not small(target, variables=[spec(size)], memory_proportion=proportion + 0.01)


def test_shapes_that_are_not_known():
    target = target_for(1, 1)
    assert small(target, op("axes", "BroadcastGradientArgs", spec(-1, dtype="int32")))
    assert not small(target, op("rows", "Where", spec(-1, 2, dtype="int64")))
    assert small(target, op("handle", "Placeholder", spec(dtype="resource")))


def loop(*specs):
    body = Graph("body", (op("given", "Placeholder", spec(1000)), op("x", "Mul", spec(10))))
    return op("loop", "While", *specs, body=("body",)), {"body": body}


def test_loops_run_over_their_longest_axis():
    # 400 bytes of results, and 40 in each turn.
    target = target_for(num_types=2, num_sets=2)
    whole, functions = loop(spec(100))
    assert small(target, whole, variables=[spec(400)], functions=functions)
    assert not small(target, whole, variables=[spec(401)], functions=functions)
    called = op("call", "PartitionedCall", spec(100), body=("body",))
    target = target_for(num_types=1, num_sets=1)
    assert small(target, called, variables=[spec(1490)], functions=functions)
    assert not small(target, called, variables=[spec(1491)], functions=functions)


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
    target = target_for(num_types=3, num_sets=2 + len(ops))
    whole, functions = loop(spec(dtype="variant"))
    assert small(target, whole, *ops, variables=[spec(400)], functions=functions)
    assert not small(target, whole, *ops, variables=[spec(401)], functions=functions)


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


def few_operations():
    """Whose products have as many types of vertices as it has operations."""
    image = keras.Input((28, 28, 1))
    return keras.Model(image, layers.Flatten()(layers.Conv2D(8, 3, activation="relu")(image)))


def traced(model, step, batch_size):
    shapes = [(batch_size, *t.shape[1:]) for t in (model.inputs[0], model.outputs[0])]
    concrete = tf.function(step, autograph=False).get_concrete_function(*map(tf.TensorSpec, shapes))
    variables = [TensorSpec(tuple(v.shape), v.dtype.name) for v in concrete.graph.variables]
    return graph_of(concrete), variables, hlo_graph(concrete)


def training(model, batch_size):
    model.compile(keras.optimizers.Adam(), "mse")
    model.optimizer.build(model.trainable_variables)

    def step(x, y):
        with traced_for_xla():
            return model.train_step((x, y))

    return traced(model, step, batch_size)


@pytest.mark.parametrize(
    ("build", "batch_size"),
    [(convolutions, 64), (products, 1024), (attention, 32), (recurrence, 32), (elements, 512)],
)
def test_what_is_small_fits(build, batch_size):
    """Twice these batches would not be small; by a model, there is room to spare."""
    graph, variables, hlo = training(build(), batch_size)
    assert is_small(graph, variables, TARGETS["gc200"])
    memory = model_graph("step", hlo, TARGETS["gc200"]).memory
    assert memory.fits
    assert memory.max_tile_bytes < 0.6 * memory.tile_bytes


@pytest.mark.parametrize("name", ["gc2", "gc200"])
@pytest.mark.parametrize("build", [few_operations, products])
def test_what_is_just_small_fits(build, name):
    """On tiles with as little memory as there can be for that."""
    model = build()
    graph, variables, hlo = traced(model, lambda x, _: model(x, training=False), 8)
    whole = TARGETS[name]

    def with_share(percent):
        share = {field: getattr(whole, field) * percent // 100 for field in SIZES}
        return whole.with_numbers(**share)

    small_on = [k for k in range(1, 101) if is_small(graph, variables, with_share(k))]
    assert small_on
    assert model_graph("step", hlo, with_share(min(small_on))).memory.fits

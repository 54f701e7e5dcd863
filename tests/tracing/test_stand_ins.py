"""Functions with stand-ins give the graphs that XLA gives without them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.python.eager import context

from ipu_keras.tracing import lowering, traced_for_xla
from ipu_keras.tracing.hlo import hlo_graph
from ipu_keras.tracing.stand_ins import defined_with_stand_ins

X = tf.TensorSpec((3, 4), tf.float32)
SEED = tf.TensorSpec((2,), tf.int32)


def trace(function, *specs):
    return tf.function(function, autograph=False).get_concrete_function(*specs)


def plain_graph(concrete):
    """The graph of XLA's own instructions."""
    return hlo_graph(concrete, stand_ins=False)


def stand_ins_of(concrete):
    """What the calls stand for in the module that the graph is read from."""
    module = hlo_pb2.HloModuleProto.FromString(lowering.lower(concrete).module)
    calls = [i for c in module.computations for i in c.instructions if i.opcode == "custom-call"]
    return [call.custom_call_target.removeprefix("ipu.stand_in.") for call in calls]


def assert_equal_graphs(one, other):
    """Also where constants are not numbers."""
    assert repr(one) == repr(other)


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32])
@pytest.mark.parametrize(
    "kind",
    [
        "Abs",
        "Ceil",
        "Cos",
        "Exp",
        "Expm1",
        "Floor",
        "Log1p",
        "OnesLike",
        "Reciprocal",
        "Relu",
        "Relu6",
        "ReluGrad",
        "Rsqrt",
        "Sigmoid",
        "Sign",
        "Sqrt",
        "Tanh",
        "ZerosLike",
    ],
)
def test_operations(kind, dtype):
    arguments = {
        "Relu": ("features",),
        "Relu6": ("features",),
        "ReluGrad": ("gradients", "features"),
    }.get(kind, ("x",))
    operation = getattr(tf.raw_ops, kind)

    def function(x):
        values = [x * (k + 2) for k in range(len(arguments))]
        first = operation(**dict(zip(arguments, values, strict=True)), name="layer/first")
        # A second one, whose result the function returns and another one takes.
        second = operation(**dict.fromkeys(arguments, first), name="layer/second")
        return second, second + first

    concrete = trace(function, tf.TensorSpec((3, 4), dtype))
    assert stand_ins_of(concrete) == [kind, kind]
    assert_equal_graphs(hlo_graph(concrete), plain_graph(concrete))


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16, tf.float32, tf.float64])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_softmax(kind, dtype, shape):
    operation = getattr(tf.raw_ops, kind)
    concrete = trace(
        lambda x: 2 * operation(logits=x, name="layer/it"), tf.TensorSpec(shape, dtype)
    )
    assert stand_ins_of(concrete) == [kind]
    assert_equal_graphs(hlo_graph(concrete), plain_graph(concrete))


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16, tf.float32])
@pytest.mark.parametrize("shape", [(3, 4), (2, 1), (2, 3, 4), (1, 2, 3, 4)])
def test_gradients_of_biases(dtype, shape):
    concrete = trace(
        lambda x: 2 * tf.raw_ops.BiasAddGrad(out_backprop=x, name="layer/it"),
        tf.TensorSpec(shape, dtype),
    )
    assert stand_ins_of(concrete) == ["BiasAddGrad " + ",".join(map(str, shape))]
    assert_equal_graphs(hlo_graph(concrete), plain_graph(concrete))


def test_gradients_of_biases_along_other_axes_are_left_to_xla():
    concrete = trace(
        lambda x: tf.raw_ops.BiasAddGrad(out_backprop=x, data_format="NCHW"),
        tf.TensorSpec((2, 3, 4)),
    )
    assert stand_ins_of(concrete) == []


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32])
def test_what_is_finite(dtype):
    concrete = trace(lambda x: tf.reduce_all(tf.math.is_finite(x)), tf.TensorSpec((3, 4), dtype))
    assert stand_ins_of(concrete) == ["IsFinite"]
    assert_equal_graphs(hlo_graph(concrete), plain_graph(concrete))


@pytest.mark.parametrize("shape", [(3, 1), (2, 0)])
def test_rows_of_at_most_one_are_left_to_xla(shape):
    assert stand_ins_of(trace(tf.nn.softmax, tf.TensorSpec(shape))) == []


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ab,bc->ac", [(2, 3), (3, 4)]),
        ("ab,bc->ca", [(2, 3), (3, 4)]),
        ("ab,ab->ab", [(2, 3), (2, 3)]),
        ("ab,b->a", [(2, 3), (3,)]),
        ("ab,bac->c", [(2, 3), (3, 2, 4)]),
        # The products of attention, and of its gradients.
        ("abc,cde->abde", [(2, 3, 4), (4, 5, 6)]),
        ("aecd,abcd->acbe", [(2, 3, 4, 5), (2, 6, 4, 5)]),
        ("acbe,aecd->abcd", [(2, 4, 6, 3), (2, 3, 4, 5)]),
        ("abcd,cde->abe", [(2, 3, 4, 5), (4, 5, 6)]),
        ("abe,cde->abcd", [(2, 3, 6), (4, 5, 6)]),
    ],
)
def test_products(equation, shapes):
    concrete = trace(
        lambda x, y: tf.raw_ops.Einsum(inputs=[x, y], equation=equation),
        *map(tf.TensorSpec, shapes),
    )
    assert stand_ins_of(concrete) == [f"Einsum {equation}"]
    assert_equal_graphs(hlo_graph(concrete), plain_graph(concrete))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ab->ba", [(2, 3)]),
        ("abc,bd->ad", [(2, 3, 4), (3, 5)]),  # a sum over c comes first
        ("...ab,bc->...ac", [(7, 2, 3), (3, 4)]),
        ("aa,ab->ab", [(2, 2), (2, 3)]),
    ],
)
def test_equations_that_are_more_than_a_product(equation, shapes):
    concrete = trace(
        lambda *operands: tf.raw_ops.Einsum(inputs=operands, equation=equation),
        *map(tf.TensorSpec, shapes),
    )
    assert stand_ins_of(concrete) == []


def test_integers_are_left_to_xla():
    concrete = trace(lambda x, k: (tf.abs(k), tf.abs(x)), X, tf.TensorSpec((2,), tf.int32))
    assert stand_ins_of(concrete) == ["Abs"]


def test_a_value_that_has_to_be_known():
    def function(x):
        rows = tf.cast(tf.sqrt(tf.constant(36.0)), tf.int32)
        return tf.exp(tf.reshape(x, [rows, -1]))

    concrete = trace(function, X)
    assert stand_ins_of(concrete) == []  # XLA lowers all of it, or nothing
    assert_equal_graphs(hlo_graph(concrete), plain_graph(concrete))


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: tf.random.stateless_uniform((5, 7), seed, -1.0, 2.0),
        lambda seed: tf.random.stateless_uniform((9,), seed, dtype=tf.float16),
        lambda seed: tf.random.stateless_normal((5, 7), seed, stddev=3.0),
        lambda seed: tf.random.stateless_truncated_normal((8,), seed),
    ],
)
def test_draws(draw):
    concrete = trace(lambda seed: draw(seed) * draw(seed + 1), SEED)
    assert len(stand_ins_of(concrete)) == 2
    graph = hlo_graph(concrete)
    assert_equal_graphs(graph, plain_graph(concrete))
    assert [op.kind for op in graph.ops].count("random") == 2


def test_draws_of_a_key_and_a_counter():
    def draw(key, counter, x):
        return x * tf.raw_ops.StatelessRandomUniformV2(
            shape=(3, 4), key=key, counter=counter, alg=1
        )

    concrete = trace(draw, tf.TensorSpec((1,), tf.uint64), tf.TensorSpec((2,), tf.uint64), X)
    assert stand_ins_of(concrete) == ["StatelessRandomUniformV2"]
    graph = hlo_graph(concrete)
    assert_equal_graphs(graph, plain_graph(concrete))
    assert [op.kind for op in graph.ops].count("random") == 1


def test_loops_branches_and_called_functions():
    @tf.function(autograph=False)
    def called(x):
        return tf.tanh(x)

    def step(x):
        x = tf.while_loop(lambda k, _: k < 5, lambda k, x: (k + 1, called(tf.exp(x))), (0, x))[1]
        return tf.cond(x[0, 0] > 0, lambda: tf.sqrt(x), lambda: called(x))

    concrete = trace(step, X)
    assert set(stand_ins_of(concrete)) == {"Exp", "Sqrt", "Tanh"}
    graph = hlo_graph(concrete)
    assert_equal_graphs(graph, plain_graph(concrete))
    assert {op.attributes.get("trip_count") for op in graph.walk()} == {None, 5}


@pytest.mark.parametrize(
    "layers",
    [
        [keras.layers.Dense(5, activation="relu"), keras.layers.Dropout(0.5)],
        [keras.layers.Reshape((6, 2)), keras.layers.LSTM(3)],
        [keras.layers.Reshape((3, 2, 2)), keras.layers.Conv2D(4, 2, activation="gelu")],
        [keras.layers.BatchNormalization(), keras.layers.Dense(3, activation="swish")],
    ],
    ids=lambda layers: layers[-1].name,
)
def test_training_steps(layers):
    model = keras.Sequential([keras.Input((12,)), *layers, keras.layers.Flatten()])
    model.add(keras.layers.Dense(2, activation="softmax"))
    model.compile("adam", "sparse_categorical_crossentropy")
    model.train_on_batch(np.zeros((4, 12)), np.zeros(4))

    def step(x, y):
        with traced_for_xla():
            return model.train_step((x, y))

    concrete = trace(step, tf.TensorSpec((4, 12)), tf.TensorSpec((4,), tf.int32))
    assert stand_ins_of(concrete).count("Sqrt") >= 4  # of Adam
    assert_equal_graphs(hlo_graph(concrete), plain_graph(concrete))


def test_definitions_are_gone_afterwards():
    concrete = trace(lambda x: tf.sqrt(x), X)
    own = concrete.name.decode()
    with defined_with_stand_ins(concrete) as name:
        assert name != own
        assert context.context().has_function(name)
    assert not context.context().has_function(name)
    assert context.context().has_function(own)

    nothing_slow = trace(lambda x: x + x, X)
    with defined_with_stand_ins(nothing_slow) as name:
        assert name == nothing_slow.name.decode()

"""From traced functions to graphs of XLA's operations.

Nothing here is executed: the graphs are read from what XLA makes of a trace.
"""

import contextlib

import pytest
import tensorflow as tf
from traced_graphs import op, ops, read, spec

from ipu_keras.config import IPUConfig
from ipu_keras.host.rewrites.pooling import fast_pooling_gradients
from ipu_keras.ir import Graph, Op, TensorSpec
from ipu_keras.machine.system import SYSTEM

IPU = "/device:IPU:0"
X = tf.TensorSpec((8, 3), tf.float32)
IMAGES = tf.TensorSpec((2, 8, 8, 4), tf.float32)


@pytest.fixture
def ipu():
    """The name of an emulated device."""
    SYSTEM.reset()
    IPUConfig().configure_ipu_system()
    yield IPU
    SYSTEM.reset()


# -- operations ----------------------------------------------------------------


def test_every_part_of_a_graph():
    # Written out in full: names, order, references, specs, attributes, results.
    kernel = tf.Variable(tf.ones((3, 4)), name="kernel")

    def step(x):
        with tf.name_scope("model"), tf.name_scope("dense"):
            return tf.matmul(x, kernel)

    graph = read(step, X)
    contracted = {
        "lhs_contracting_dimensions": (1,),
        "rhs_contracting_dimensions": (0,),
        "lhs_batch_dimensions": (),
        "rhs_batch_dimensions": (),
    }
    argument = {"number": 0, "first_leaf": 0, "role": "argument"}
    variable = {"number": 1, "first_leaf": 1, "role": "variable", "name": "kernel"}
    layer = {"layer": "model/dense"}
    matmul, product = "model/dense/MatMul/dot", "model/dense/MatMul/transpose"
    assert graph == Graph(
        "step",
        (
            Op("parameter", "parameter", (spec(8, 3),), attributes=argument, **layer),
            Op("parameter.1", "parameter", (spec(3, 4),), attributes=variable, **layer),
            # XLA's way of entering and leaving a computation.
            Op("reshape", "reshape", (spec(8, 3),), inputs=("parameter",), **layer),
            Op(
                matmul,
                "dot",
                (spec(8, 4),),
                inputs=("reshape", "parameter.1"),
                attributes=contracted,
                **layer,
            ),
            Op(
                product,
                "transpose",
                (spec(8, 4),),
                inputs=(matmul,),
                attributes={"dimensions": (0, 1)},
                **layer,
            ),
            Op("reshape.1", "reshape", (spec(8, 4),), inputs=(product,), **layer),
        ),
        results=("reshape.1",),
        form="hlo",
    )


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint8", "int32", "int64", "uint64", "float16", "bfloat16", "float64"],
)
def test_dtypes_and_values_of_scalars(dtype):
    condition = tf.TensorSpec((2,), tf.bool)
    graph = read(lambda x: tf.where(x, tf.ones((), dtype), tf.zeros((2,), dtype)), condition)
    select = op(graph, "select")
    assert select.outputs == (TensorSpec((2,), dtype),)
    assert 1 in [constant.attributes.get("value") for constant in ops(graph, "constant")]


def test_several_results_and_constants_without_values():
    def step(x):
        # Values of a tensor are of no use to a cost; its size is in its spec.
        return tf.argmax(x, axis=1) + tf.constant([1, 2, 3, 4, 5, 6, 7, 9], tf.int64), x

    graph = read(step, X)
    pairs = op(graph, "reduce")
    assert pairs.outputs == (spec(8), spec(8, dtype="int32"))
    assert pairs.attributes == {"dimensions": (1,), "operation": "custom"}
    (index,) = [o for o in graph.ops if f"{pairs.name}:1" in o.inputs]
    assert index.kind == "convert"
    constant = next(o for o in graph.ops if o.outputs == (spec(8, dtype="int64"),) and not o.inputs)
    assert constant.attributes == {}
    assert len(graph.results) == 2


@pytest.mark.parametrize(
    ("function", "kind", "attributes", "output"),
    [
        (
            lambda x: tf.einsum("bij,bkj->bik", x, x),
            "dot",
            {
                "lhs_contracting_dimensions": (2,),
                "rhs_contracting_dimensions": (2,),
                "lhs_batch_dimensions": (0,),
                "rhs_batch_dimensions": (0,),
            },
            (4, 6, 6),
        ),
        (
            lambda x: tf.reduce_max(x, [0, 2]),
            "reduce",
            {"dimensions": (0, 2), "operation": "maximum"},
            (6,),
        ),
        (
            lambda x: tf.reduce_mean(tf.cast(x, tf.float16), 1),
            "reduce",
            # XLA sums in float32.
            {"dimensions": (1,), "operation": "add"},
            (4, 5),
        ),
        (
            lambda x: x[1:4:2, :, 2:],
            "slice",
            {"start": (1, 0, 2), "limit": (4, 6, 5), "stride": (2, 1, 1)},
            (2, 6, 3),
        ),
        (
            lambda x: tf.pad(x, [[1, 2], [0, 0], [0, 3]]),
            "pad",
            {
                "edge_padding_low": (1, 0, 0),
                "edge_padding_high": (2, 0, 3),
                "interior_padding": (0, 0, 0),
            },
            (7, 6, 8),
        ),
        (
            lambda x: tf.transpose(x, [2, 0, 1]),
            "transpose",
            {"dimensions": (2, 0, 1)},
            (5, 4, 6),
        ),
        (lambda x: tf.concat([x, x], 1), "concatenate", {"dimensions": (1,)}, (4, 12, 5)),
        (lambda x: tf.reverse(x, [0, 2]), "reverse", {"dimensions": (0, 2)}, (4, 6, 5)),
        (lambda x: x > tf.sqrt(x), "compare", {"direction": "GT"}, (4, 6, 5)),
        (
            lambda x: tf.gather(x, tf.cast(x[:3, 0, 0], tf.int32), axis=1),
            "gather",
            {
                "offset_dims": (0, 2),
                "collapsed_slice_dims": (1,),
                "start_index_map": (1,),
                "index_vector_dim": 1,
                "operand_batching_dims": (),
                "start_indices_batching_dims": (),
                "slice_sizes": (4, 1, 5),
                "indices_are_sorted": False,
            },
            (4, 3, 5),
        ),
        (
            lambda x: tf.math.unsorted_segment_sum(x, tf.cast(x[:, 0, 0], tf.int32), 7),
            "scatter",
            {
                "update_window_dims": (1, 2),
                "inserted_window_dims": (0,),
                "scatter_dims_to_operand_dims": (0,),
                "index_vector_dim": 1,
                "input_batching_dims": (),
                "scatter_indices_batching_dims": (),
                "indices_are_sorted": False,
                "unique_indices": False,
                "operation": "add",
            },
            (7, 6, 5),
        ),
        (
            lambda x: tf.slice(x, [tf.cast(x[0, 0, 0], tf.int32), 0, 0], [1, 6, 5]),
            "dynamic-slice",
            {"slice_sizes": (1, 6, 5)},
            (1, 6, 5),
        ),
    ],
)
def test_attributes(function, kind, attributes, output):
    graph = read(function, tf.TensorSpec((4, 6, 5), tf.float32))
    found = [o for o in ops(graph, kind) if o.outputs[0].shape == output]
    assert found
    assert found[-1].attributes == attributes


def test_a_convolution_and_its_gradients():
    # 3x3, stride 2, "same" on 8x8: 4x4 results need (4-1)*2+3 = 9 rows, one more
    # than there are, which is padded below. Of the input's gradient the windows
    # lie on the 4x4 gradient spread out to 4+3 = 7 rows, padded by 3-1 = 2 minus
    # the forward pass's 0 above, and 8 results need 8+3-1 = 10 rows: 1 below.
    kernel = tf.Variable(tf.ones((3, 3, 4, 6)))

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            with tf.name_scope("conv"):
                y = tf.nn.conv2d(x, kernel, 2, "SAME")
        return tape.gradient(y, [x, kernel])

    weights, data = sorted(
        ops(read(step, IMAGES), "convolution"), key=lambda o: o.outputs[0].shape[0], reverse=True
    )
    assert (data.outputs, weights.outputs) == ((spec(2, 8, 8, 4),), (spec(3, 3, 4, 6),))
    assert {data.layer, weights.layer} == {"conv"}
    assert data.backward
    assert weights.backward

    # All but the window of the forward pass is that of the input's gradient too.
    (forward,) = ops(read(lambda x: tf.nn.conv2d(x, kernel, 2, "SAME"), IMAGES), "convolution")
    assert not forward.backward
    assert forward.outputs == (spec(2, 4, 4, 6),)
    assert forward.attributes == {
        "window_size": (3, 3),
        "window_stride": (2, 2),
        "window_padding": ((0, 1), (0, 1)),
        "base_dilation": (1, 1),
        "window_dilation": (1, 1),
        "window_reversal": (False, False),
        "input_batch_dimension": 0,
        "input_feature_dimension": 3,
        "input_spatial_dimensions": (1, 2),
        "kernel_input_feature_dimension": 2,
        "kernel_output_feature_dimension": 3,
        "kernel_spatial_dimensions": (0, 1),
        "output_batch_dimension": 0,
        "output_feature_dimension": 3,
        "output_spatial_dimensions": (1, 2),
        "feature_group_count": 1,
        "batch_group_count": 1,
    }
    changed = {
        "window_stride": (1, 1),
        "window_padding": ((2, 1), (2, 1)),
        "base_dilation": (2, 2),
        # The kernel is used upside down, its features the other way round.
        "kernel_input_feature_dimension": 3,
        "kernel_output_feature_dimension": 2,
    }
    reversal = data.attributes["window_reversal"]
    assert {**data.attributes, "window_reversal": None} == {
        **forward.attributes,
        **changed,
        "window_reversal": None,
    }
    assert reversal in [(True, True), (False, False)]
    # The weights' gradient slides the 4x4 gradient, spread out by the stride,
    # over the images; batch and features trade places.
    attributes = weights.attributes
    assert attributes["window_size"] == (4, 4)
    assert attributes["window_dilation"] == (2, 2)
    assert attributes["window_stride"] == attributes["base_dilation"] == (1, 1)
    assert attributes["input_batch_dimension"] == 3
    assert attributes["input_feature_dimension"] == 0
    assert attributes["output_spatial_dimensions"] == (0, 1)


def test_groups_of_a_convolution():
    kernel = tf.Variable(tf.ones((3, 3, 4, 2)))
    graph = read(lambda x: tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "VALID"), IMAGES)
    convolution = op(graph, "convolution")
    assert convolution.attributes["feature_group_count"] == 4
    assert convolution.outputs == (spec(2, 6, 6, 8),)


@pytest.mark.parametrize("fast", [False, True])
def test_pooling_and_its_gradient(fast):
    def step(x):
        with (
            fast_pooling_gradients() if fast else contextlib.nullcontext(),
            tf.GradientTape() as tape,
        ):
            tape.watch(x)
            with tf.name_scope("pool"):
                y = tf.nn.max_pool2d(x, 2, 2, "VALID")
            return y, tape.gradient(y, x)

    graph = read(step, IMAGES)
    window = {
        "window_size": (1, 2, 2, 1),
        "window_stride": (1, 2, 2, 1),
        "window_padding": ((0, 0),) * 4,
        "base_dilation": (1,) * 4,
        "window_dilation": (1,) * 4,
        "window_reversal": (False,) * 4,
    }
    forward = op(graph, "reduce-window")
    assert forward.attributes == {**window, "operation": "maximum"}
    assert (forward.layer, forward.backward) == ("pool", False)
    if not fast:
        backward = op(graph, "select-and-scatter")
        assert backward.attributes == {**window, "select": "GE", "operation": "add"}
        assert (backward.layer, backward.backward) == ("pool", True)
    else:
        assert op(graph, "call").body == ("max_pool_gradient",)
        assert list(graph.functions) == ["max_pool_gradient"]
        # Four elements of a window are compared with the largest, then places with its place.
        assert len(ops(graph, "compare")) == 5


# -- random numbers ------------------------------------------------------------


@pytest.mark.parametrize("for_xla", [False, True])
def test_dropout_draws_once(for_xla):
    def step(x, seed):
        with tf.name_scope("model"), tf.name_scope("dropout_1"):
            return tf.nn.experimental.stateless_dropout(x, 0.25, seed)

    graph = read(step, X, tf.TensorSpec((2,), tf.int32), for_xla=for_xla)
    draw = op(graph, "random")
    assert draw == Op(
        "model/dropout_1/stateless_dropout/stateless_random_uniform/random",
        "random",
        (spec(8, 3),),
        inputs=("reshape.1",),
        attributes={"distribution": "uniform"},
        layer="model/dropout_1",
    )
    seed = next(o for o in graph.ops if o.name == "reshape.1")
    assert seed.outputs == (spec(2, dtype="int32"),)
    # 3 parameters' worth of reshapes, the mask, the scaling, the choice; no integers.
    assert len(graph.ops) < 20
    assert {o.kind for o in graph.ops} == {
        "parameter",
        "reshape",
        "random",
        "constant",
        "broadcast",
        "compare",
        "multiply",
        "select",
    }
    mask = op(graph, "compare")
    assert mask.inputs[0] == draw.name
    assert mask.attributes == {"direction": "GE"}


@pytest.mark.parametrize(
    ("draw", "distribution", "output"),
    [
        (lambda s: tf.random.stateless_normal((5,), s), "normal", spec(5)),
        (
            lambda s: tf.random.stateless_truncated_normal((5,), s, dtype=tf.float16),
            "truncated_normal",
            spec(5, dtype="float16"),
        ),
        (
            lambda s: tf.random.stateless_uniform((5,), s, 0, 9, tf.int32),
            "uniform",
            spec(5, dtype="int32"),
        ),
        (lambda s: tf.random.uniform((5,)), "uniform", spec(5)),
        (lambda s: tf.random.normal((5,)), "normal", spec(5)),
    ],
)
def test_draws(draw, distribution, output):
    graph = read(draw, tf.TensorSpec((2,), tf.int32))
    drawn = op(graph, "random")
    assert drawn.attributes == {"distribution": distribution}
    assert drawn.outputs == (output,)
    assert {o.kind for o in graph.ops} == {"parameter", "reshape", "random"}


def test_draws_of_one_seed_are_several_operations():
    def step(seed):
        return [tf.random.stateless_uniform((size,), seed) for size in (3, 4)]

    graph = read(step, tf.TensorSpec((2,), tf.int32))
    assert {o.outputs for o in ops(graph, "random")} == {(spec(3),), (spec(4),)}


def test_what_is_called_as_if_it_drew():
    """A metric of Keras is called "poisson"; only what draws is no layer."""

    def step(x):
        with tf.name_scope("metrics"), tf.name_scope("poisson"):
            y = tf.multiply(x, x)
        with tf.name_scope("noise"):
            return tf.subtract(y, tf.random.stateless_normal(x.shape, (1, 2)), name="minus")

    graph = read(step, X)
    assert op(graph, "multiply").layer == "metrics/poisson"
    assert op(graph, "random").layer == op(graph, "subtract").layer == "noise"


# -- variables -----------------------------------------------------------------


@pytest.mark.parametrize("device", ["/device:CPU:0", IPU])
def test_a_training_step(ipu, device):
    with tf.device(device):
        kernel = tf.Variable(tf.ones((3, 4)), name="dense/kernel")
        momentum = tf.Variable(tf.zeros((3, 4)), name="sgd/momentum")
        rate = tf.Variable(0.1, trainable=False, name="sgd/rate")

    def step(x):
        with tf.GradientTape() as tape:
            with tf.name_scope("pipeline_stage_0"), tf.name_scope("dense"):
                y = tf.nn.relu(tf.matmul(x, kernel))
            with tf.name_scope("loss"):
                loss = tf.reduce_mean(y * y)
        gradient = tape.gradient(loss, kernel)
        with tf.name_scope("weight_update"), tf.name_scope("sgd"):
            momentum.assign(momentum * 0.9 - gradient * rate)
            kernel.assign_add(momentum)
        return loss

    with tf.device(device):
        graph = read(step, X)
    # Nothing ran.
    tf.debugging.assert_equal(kernel.read_value(), tf.ones((3, 4)))
    tf.debugging.assert_equal(momentum.read_value(), tf.zeros((3, 4)))

    parameters = {
        o.attributes.get("name", "x"): (o.attributes["role"], o.outputs, o.layer)
        for o in ops(graph, "parameter")
    }
    assert parameters == {
        "x": ("argument", (spec(8, 3),), "dense"),
        "dense/kernel": ("variable", (spec(3, 4),), "dense"),
        "sgd/momentum": ("variable", (spec(3, 4),), "sgd"),
        "sgd/rate": ("variable", (spec(),), "sgd"),
    }
    # The results are the loss and what the two variables are after the step.
    assert len(graph.results) == 3
    written = {
        o.attributes["name"]: graph.results[o.attributes["result"]]
        for o in ops(graph, "parameter")
        if "result" in o.attributes
    }
    assert set(written) == {"dense/kernel", "sgd/momentum"}
    assert sorted(o.name for o in graph.ops if o.stateful) == sorted(written.values())

    forward, backward = sorted(ops(graph, "dot"), key=lambda o: o.backward)
    for product in (forward, backward):
        assert (product.layer, product.stage) == ("dense", 0)
    assert backward.backward
    assert backward.outputs == (spec(3, 4),)
    (mean,) = ops(graph, "reduce")
    assert (mean.layer, mean.backward) == ("loss", False)
    assert {o.layer for o in graph.ops} == {"dense", "loss", "sgd"}
    # The gradient of a mean over 8 x 4 elements: 1/32 for each.
    values = [o.attributes.get("value") for o in ops(graph, "constant") if o.backward]
    assert 0.03125 in values
    assert not any(o.backward for o in graph.ops if o.layer == "sgd")
    assert {o.layer for o in graph.ops if o.weight_update} == {"sgd"}
    assert all(o.weight_update for o in graph.ops if o.layer == "sgd")
    assert {(o.layer, o.stage) for o in graph.ops if not o.weight_update} == {
        ("dense", 0),
        ("loss", None),
    }


def test_variables_are_told_from_captured_tensors():
    table = tf.constant([[1.0, 2.0, 3.0]])
    bias = tf.Variable([1.0, 1.0, 1.0], name="bias")
    graph = read(lambda x: x * table + bias, X)
    roles = [o.attributes["role"] for o in ops(graph, "parameter")]
    assert sorted(roles) == ["argument", "capture", "variable"]
    (variable,) = [o for o in ops(graph, "parameter") if o.attributes["role"] == "variable"]
    assert variable.attributes["name"] == "bias"
    assert variable.outputs == (spec(3),)


def test_inputs_that_are_constants_for_xla():
    # A captured shape is no parameter; the variables after it keep their names.
    shape = tf.constant([3, 8])
    first, second = (tf.Variable(tf.zeros((3, 8)), name=name) for name in ("first", "second"))
    graph = read(lambda x: first + tf.reshape(x, shape) + second, X)
    names = [o.attributes.get("name") for o in ops(graph, "parameter")]
    assert [name for name in names if name in ("first", "second")] == ["first", "second"]


@pytest.mark.parametrize("calls", [1, 2])
def test_functions_that_are_called(calls):
    weights = tf.Variable(tf.eye(3))

    @tf.function(autograph=False)
    def inner(x):
        with tf.name_scope("layer"):
            return tf.nn.tanh(x @ weights)

    def step(x):
        for _ in range(calls):
            x = inner(x)
        return x

    graph = read(step, X)
    assert [o.layer for o in ops(graph, "dot")] == ["layer"] * calls
    assert [o.layer for o in ops(graph, "tanh")] == ["layer"] * calls

"""Partial sums are halves where options and scopes say so, wherever a program comes from."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from configured_ipus import configured
from in_passes import product
from in_sessions import compiled, opened

from ipu_keras import ipu_infeed_queue, ipu_outfeed_queue, pipelining_ops, scopes
from ipu_keras.ops.cross_replica_ops import cross_replica_sum
from ipu_keras.ops.rnn_ops import PopnnGRU, PopnnLSTM
from ipu_keras.pipelining_ops import PipelineStageOptions

pytestmark = pytest.mark.usefixtures("reset_afterwards")

# Sixteen products of the half 0.03 make 0.48, which is lost from 1024 on. All of them make 1966;
# float32 in which they are added up one by one is off by as much as 1.
SIZE, PART = 65536, np.float16(0.03)


def kind_of(total):
    assert total == 1024 or abs(total - 1966) <= 1
    return "half" if total == 1024 else "float"


def with_partials(*, dot="float", convolution="float", num_ipus=1):
    return configured(
        num_ipus,
        matmuls__poplar_options={"partialsType": dot},
        convolutions__poplar_options={"partialsType": convolution},
    )


in_both = pytest.mark.parametrize("jit_compile", [None, True])


def sums(x, y):
    """A product, and a convolution of one place."""
    image, filters = tf.reshape(x, [1, 1, 1, SIZE]), tf.reshape(y, [1, 1, SIZE, 1])
    return tf.matmul(x, y), tf.nn.conv2d(image, filters, 1, "VALID")


def operands():
    return np.ones([1, SIZE], np.float16), np.full([SIZE, 1], PART)


@in_both
@pytest.mark.parametrize(("dot", "convolution"), [("half", "float"), ("float", "half")])
@pytest.mark.parametrize("num_ipus", [1, 2])
def test_functions(dot, convolution, num_ipus, jit_compile):
    strategy = with_partials(dot=dot, convolution=convolution, num_ipus=num_ipus)
    function = tf.function(sums, jit_compile=jit_compile)
    found = strategy.run(function, [*map(tf.constant, operands())])
    assert [kind_of(total.numpy().item()) for total in found] == [dot, convolution]


@in_both
def test_scopes(jit_compile):
    """The innermost scope counts, of calls as well, and what is in none does as configured."""
    strategy = with_partials(dot="half")

    @tf.function
    def called(x, y):
        with scopes.partials_type(np.float32):
            inner = tf.matmul(x, y)
        return inner, tf.matmul(x, y)

    @tf.function(jit_compile=jit_compile)
    def function(x, y):
        with scopes.partials_type(tf.float16):
            halves, of_call = sums(x, y), called(x, y)
        with scopes.partials_type(np.float32):
            floats, of_other = sums(x, y), called(x, y)
        return halves, of_call, floats, of_other, sums(x, y)

    found = strategy.run(function, [*map(tf.constant, operands())])
    kinds = [[kind_of(total.numpy().item()) for total in pair] for pair in found]
    assert kinds == [
        ["half", "half"],
        ["float", "half"],
        ["float", "float"],
        ["float", "float"],
        ["half", "float"],
    ]


def test_scopes_of_loops_and_branches_that_exchange_values():
    strategy = with_partials(num_ipus=2)

    @tf.function
    def function(x, y):
        def product():
            return tf.matmul(x, y) + cross_replica_sum(np.float16(0))

        zero = tf.zeros([1, 1], tf.float16)
        with scopes.partials_type(np.float16):
            in_branch = tf.cond(tf.constant(1) > 0, product, lambda: zero)
            looped = tf.while_loop(lambda k, _: k < 1, lambda k, _: (k + 1, product()), (0, zero))
        return in_branch, looped[1], product()

    given = np.ones([1, SIZE], np.float16), np.full([SIZE, 1], PART)
    found = strategy.run(function, [*map(tf.constant, given)])
    assert [kind_of(total.numpy().item()) for total in found] == ["half", "half", "float"]


@in_both
def test_gradients(jit_compile):
    """They are operations of their own, with the type of the scope that they are computed in."""
    strategy = with_partials()

    @tf.function(jit_compile=jit_compile)
    def function(x, y):
        with tf.GradientTape(persistent=True) as tape, scopes.partials_type(np.float16):
            tape.watch(x)
            products = tf.matmul(x, y)
        outside = tape.gradient(products, x)
        with scopes.partials_type(np.float16):
            return outside, tape.gradient(products, x)

    given = np.ones([1, 1], np.float16), np.full([1, SIZE], PART)
    found = strategy.run(function, [*map(tf.constant, given)])
    assert [kind_of(total.numpy().item()) for total in found] == ["float", "half"]


def test_sessions():
    with_partials(dot="half")
    with tf.Graph().as_default():
        given = [tf.compat.v1.placeholder(tf.float16, each.shape) for each in operands()]
        result = compiled(sums, given)
        found = opened().run(result, dict(zip(given, operands(), strict=True)))
    assert [kind_of(total.item()) for total in found] == ["half", "float"]


def trained(strategy, jit_compile):
    rng = np.random.default_rng(0)
    x, y = (
        rng.normal(size=[32, 6, 6, 3]).astype(np.float16),
        rng.integers(0, 4, [32]).astype(np.int32),
    )
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input([6, 6, 3], dtype="float16"),
                keras.layers.Conv2D(20, 3, activation="relu", dtype="float16"),
                keras.layers.Conv2D(8, 2, strides=2, padding="same", dtype="float16"),
                keras.layers.Flatten(dtype="float16"),
                keras.layers.Dense(4, dtype="float16"),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=jit_compile)
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return model.get_weights()


@pytest.mark.parametrize("num_ipus", [1, 2])
def test_training(num_ipus):
    """Both ways of the host have the same bits, which are others than those of float32's sums."""
    floats, halves, of_executor = (
        trained(with_partials(dot=kind, convolution=kind, num_ipus=num_ipus), jit_compile)
        for kind, jit_compile in (("float", True), ("half", True), ("half", False))
    )
    kernels = zip(floats, halves, strict=True)
    assert [(one != other).any() for one, other in kernels][::2] == [True] * 3
    for one, other in zip(halves, of_executor, strict=True):
        np.testing.assert_array_equal(one, other)


def of_stages(jit_compile, *, dot="float", trains=True, **options):
    """Predictions and trained weights of two layers, each a stage, with options of stages."""
    strategy = with_partials(dot=dot, num_ipus=2)
    rng = np.random.default_rng(0)
    # Of few bits, so that float32 adds up without an error, in whatever order.
    x, y, *kernels = (
        (rng.integers(-32, 33, shape) / 32).astype(np.float16)
        for shape in ((128, 40), (128, 24), (40, 48), (48, 24))
    )
    with strategy.scope():
        model = keras.Sequential([keras.Input([40], dtype="float16")])
        for units in (48, 24):
            model.add(keras.layers.Dense(units, use_bias=False, dtype="float16"))
        model.compile(
            keras.optimizers.SGD(1.0), "mse", jit_compile=jit_compile, steps_per_execution=4
        )
        model.set_pipeline_stage_assignment([0, 1])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, **options)
    model.set_weights(kernels)
    predicted = model.predict(x, batch_size=32, verbose=0)
    if trains:
        model.fit(x, y, batch_size=32, shuffle=False, verbose=0)
    return x, kernels, predicted, model.get_weights()


def in_stages(*kinds):
    return [PipelineStageOptions(matmul_options={"partialsType": kind}) for kind in kinds]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_stages(jit_compile):
    _, _, predicted, trained_kernels = of_stages(jit_compile)
    # Of stages where the whole program has another type.
    kinds = ("half", "float")
    for dot in kinds:
        x, kernels, found, _ = of_stages(
            jit_compile,
            dot=dot,
            trains=False,
            forward_propagation_stages_poplar_options=in_stages(*kinds),
        )
        for kind, kernel in zip(kinds, kernels, strict=True):
            exact = (np.float32(x) @ np.float32(kernel)).astype(np.float16)
            x = product(x, kernel) if kind == "half" else exact
        np.testing.assert_array_equal(found, x)
        assert (found != predicted).any()
    # The gradient of the second kernel, and what the first stage is given, are of the second.
    for kinds, changed in ((("half", "float"), [True, False]), (("float", "half"), [True, True])):
        given = in_stages(*kinds)
        _, _, found, kernels = of_stages(
            jit_compile, backward_propagation_stages_poplar_options=given
        )
        np.testing.assert_array_equal(found, predicted)
        pairs = zip(kernels, trained_kernels, strict=True)
        assert [(one != other).any() for one, other in pairs] == changed


@pytest.mark.parametrize("num_ipus", [2, 4])
@pytest.mark.parametrize("kinds", [("half", "float"), ("float", "half")])
def test_stages_within_functions(kinds, num_ipus):
    """Each stage adds up as many numbers, and has options that no other pipeline has."""
    strategy = with_partials(num_ipus=num_ipus)
    x, y = operands()
    data = tf.data.Dataset.from_tensors(x).repeat()
    queues = [
        (ipu_infeed_queue.IPUInfeedQueue(data), ipu_outfeed_queue.IPUOutfeedQueue())
        for _ in range(2)
    ]

    def total(image):
        return tf.matmul(image, y)[0, 0]

    @tf.function
    def run():
        for own, (infeed, outfeed) in zip((kinds, kinds[::-1]), queues, strict=True):
            pipelining_ops.pipeline(
                [lambda image: (image, total(image)), lambda image, first: (first, total(image))],
                4,
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                forward_propagation_stages_poplar_options=in_stages(*own),
            )

    for infeed, _ in queues:
        infeed.initializer  # noqa: B018 (reading it starts the feed)
    strategy.run(run)
    for own, (_, outfeed) in zip((kinds, kinds[::-1]), queues, strict=True):
        found = [np.unique(each).item() for each in outfeed.dequeue()]
        assert [kind_of(each) for each in found] == list(own)


@pytest.mark.parametrize("layer_class", [PopnnLSTM, PopnnGRU])
def test_recurrent_layers(layer_class):
    """What a layer says counts, whatever is configured, and in its gradients too."""
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=[2, 20, 20]).astype(np.float16))

    def found(partials, dot):
        strategy = with_partials(dot=dot)
        initial = tf.keras.initializers.GlorotUniform(seed=1)
        options = {"dtype": tf.float16, "partials_dtype": partials}
        layer = layer_class(17, weights_initializer=initial, **options)
        with strategy.scope():
            layer.build(x.shape)

        @tf.function
        def function(x):
            with tf.GradientTape() as tape:
                outputs, _ = layer(x)
            return outputs, tape.gradient(outputs, layer.kernel)

        return [tensor.numpy() for tensor in strategy.run(function, [x])]

    halves, floats, whatever = (
        found(*kinds)
        for kinds in ((tf.float16, "float"), (tf.float32, "float"), (tf.float32, "half"))
    )
    for in_halves, in_floats, same in zip(halves, floats, whatever, strict=True):
        np.testing.assert_array_equal(in_floats, same)
        assert (in_halves != in_floats).any()
        np.testing.assert_allclose(in_halves, in_floats, rtol=0.02, atol=0.02)


def test_op_by_op():
    """Single operations are computed as those of functions, and know scopes around them."""
    with_partials(dot="half")
    x, y = map(tf.constant, operands())
    with tf.device("/device:IPU:0"):
        found = [*sums(x, y)]
        with scopes.partials_type(np.float32):
            found += sums(x, y)
        with scopes.partials_type(np.float16):
            found += sums(x, y)
    kinds = [kind_of(total.numpy().item()) for total in found]
    assert kinds == ["half", "float", "float", "float", "half", "half"]

"""The table of rewrites: complete, and each of them can be switched off."""

import pkgutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.host import rewrites
from ipu_keras.host.rewrites.all_rewrites import (
    ENVIRONMENT_VARIABLE,
    REWRITES,
    Purpose,
    rewrites_for,
)
from ipu_keras.host.traced_step import trace
from ipu_keras.ir import TensorSpec
from ipu_keras.program import Program

# What is in the folder besides rewrites: how operations are replaced, and the table.
MECHANISM = {"all_rewrites", "replacement"}
NAMES = [one.name for one in REWRITES]
SPEC = TensorSpec((4, 6, 6, 2), "float32")


def gradient_of(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.square(function(x)))
    return tape.gradient(loss, x)


def pooled(x):
    return gradient_of(lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), x)


def random_bits(x):
    return x * tf.random.stateless_uniform(SPEC.shape, (1, 2))


def projected(x):
    """The gradient of a kernel that multiplies rows of several sequences."""
    kernel = tf.reshape(tf.range(8.0), (2, 4)) - tf.reduce_mean(x)
    return gradient_of(lambda kernel: tf.reshape(x, (4, 36, 2)) @ kernel, kernel)


def centred(x):
    return gradient_of(lambda x: tf.reduce_mean(x, (0, 1, 2), keepdims=True) * x, x)


def tall(x):
    rows = tf.tile(tf.reshape(x, (72, 4)), (8, 1))
    return tf.matmul(rows, rows[:, :1], transpose_a=True)


def rooted(x):
    """Sums of squares, none of which is zero: else the results would differ."""
    return gradient_of(lambda x: tf.sqrt(x * x + 1.0), x)


def twice(x):
    """The root of a scalar, written twice."""
    first, second = (tf.sqrt(tf.constant(2.0) + tf.constant(1.0)) for _ in range(2))
    return x * first + second


def normalized_convolution(x):
    images = tf.nn.conv2d(x, tf.ones((3, 3, 2, 2)), 1, "SAME")
    statistics = [tf.constant([1.0, 2.0])] * 4
    return tf.raw_ops.FusedBatchNormV3(
        x=images,
        scale=statistics[0],
        offset=statistics[1],
        mean=statistics[2],
        variance=statistics[3],
        is_training=False,
    ).y


def convolved_and_pooled(x):
    images = tf.nn.conv2d(x, tf.ones((2, 2, 2, 64)), 1, "VALID")
    return tf.nn.max_pool2d(images, 2, 2, "VALID")


def convolved(x):
    return tf.nn.relu(tf.nn.conv2d(x, tf.ones((2, 2, 2, 1024)), 1, "VALID"))


@pytest.fixture(scope="module")
def normalized():
    layer = keras.layers.BatchNormalization()
    layer.build(SPEC.shape)
    return lambda x: gradient_of(lambda x: layer(x, training=True) * x, x)


def divides_images(op):
    """The gradient of a mean, divided for every pixel."""
    [result] = op.outputs or [None]
    return op.type == "RealDiv" and result.shape == SPEC.shape and bool(result.consumers())


def is_kind(kind):
    return lambda op: op.type == kind


def is_folded(op):
    """A normalization that nobody takes."""
    return op.type == "FusedBatchNormV3" and not op.outputs[0].consumers()


def is_equal_root(op):
    """A root that nobody takes."""
    return op.type == "Sqrt" and not op.outputs[0].consumers()


def is_cut(op):
    """Pooling of images with their edges, which nobody takes."""
    return op.type == "MaxPool" and not op.outputs[0].consumers()


# By rewrite: a step, and which of its operations there are with the rewrite alone, or without it
# alone.
CASES = {
    "pooling": (pooled, is_kind("PartitionedCall"), True),
    "random_bits": (random_bits, is_kind("XlaCallModule"), True),
    "summed_products": (projected, is_kind("MatMul"), True),
    "late_tiles": (centred, divides_images, False),
    "wide_products": (tall, is_kind("XlaOptimizationBarrier"), True),
    "shared_roots": (twice, is_equal_root, True),
    "edge_gradients": (rooted, is_kind("SelectV2"), True),
    "folded_batch_norms": (normalized_convolution, is_folded, True),
    "unread_edges": (convolved_and_pooled, is_cut, True),
    "fused_batch_norms": (None, is_kind("FusedBatchNormV3"), True),
    "shifted_products": (convolved, is_kind("PartitionedCall"), True),
}

# Not in what XLA compiles.
OF_EXECUTOR = {"fused_batch_norms", "shifted_products"}


def program_of(step, **options):
    return Program(
        name="work",
        step=step,
        infeed=(SPEC,),
        unflatten=lambda tensors: tensors[0],
        repeat_count=1,
        **options,
    )


@pytest.fixture
def run(normalized):
    """Runs the step of a rewrite: its result, and whether its graph is as the rewrite has it."""

    def run(name):
        step, is_sign, with_rewrite = CASES[name]
        for_xla = name not in OF_EXECUTOR
        fast_math = name.endswith("batch_norms")
        traced = trace(program_of(step or normalized, fast_math=fast_math), for_xla)
        function = traced.function
        function = function if for_xla else traced.for_executor(function)
        graph = function.graph
        has_rewrite = any(map(is_sign, graph.get_operations())) is with_rewrite
        # XLA's own random numbers are others.
        compiled = for_xla and (has_rewrite or name != "random_bits")
        x = tf.constant(np.random.default_rng(0).normal(size=SPEC.shape), tf.float32)
        return tf.function(lambda x: function(x), jit_compile=compiled)(x), has_rewrite

    return run


def test_every_module_of_the_folder_has_an_entry():
    modules = {module.name for module in pkgutil.iter_modules(rewrites.__path__)}
    assert modules - MECHANISM == set(NAMES) == set(CASES)
    assert len(NAMES) == len(set(NAMES))
    for one in REWRITES:
        assert any(character.isdigit() for character in one.gain), "the gain is a measurement"
        assert one.undone


@pytest.mark.parametrize("name", NAMES)
def test_each_can_be_switched_off(name, run, monkeypatch):
    expected, has_rewrite = run(name)
    assert has_rewrite
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, f"-{name}")
    received, has_rewrite = run(name)
    assert not has_rewrite
    np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-4)
    # The others stay on.
    others = ",".join(f"-{other}" for other in NAMES if other != name)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, others)
    assert run(name)[1]
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "none")
    assert not run(name)[1]


def test_batch_norms_that_stay_as_they_are_are_traced_once(normalized, monkeypatch):
    """A trace for XLA says that another would be faster, unless that has been switched off."""
    assert not trace(program_of(normalized), for_xla=True).could_fuse
    program = program_of(normalized, fast_math=True)
    assert trace(program, for_xla=True).could_fuse
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "-fused_batch_norms")
    assert not trace(program, for_xla=True).could_fuse


@pytest.mark.parametrize("text", ["", " ", "-pooling", " -pooling , -late_tiles,", "none"])
def test_what_is_left(monkeypatch, text):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, text)
    for_xla = Purpose(for_xla=True, onednn=False, fast_math=True, accumulates=False)
    left = {one.name for one in rewrites_for(for_xla)}
    on = set(NAMES) - OF_EXECUTOR
    assert left == (set() if text == "none" else {name for name in on if f"-{name}" not in text})


@pytest.mark.parametrize("text", ["pooling", "-poolings", "-pooling,none", "--pooling", "-"])
def test_unknown_names(run, monkeypatch, text):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, text)
    with pytest.raises(ValueError) as error:
        run("pooling")
    assert str(error.value).startswith(
        "IPU_KERAS_HOST_REWRITES must name rewrites to switch off, each after a minus and "
        "separated by commas, or be 'none', which switches off all. There are edge_gradients, "
        "folded_batch_norms, "
        "fused_batch_norms, late_tiles, pooling, random_bits, shared_roots, shifted_products, "
        "summed_products, unread_edges, wide_products. Received: "
    )
    assert str(error.value).endswith(text.removeprefix("-pooling,"))

"""Group, instance and layer normalisation with variables of v1, against NumPy."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from ipu_keras.ops import normalization_ops, normalized_groups
from ipu_keras.ops.normalization_ops import group_norm, instance_norm, layer_norm

X = np.random.default_rng(0).normal(1.0, 2.0, (2, 3, 5, 6)).astype("float32")
INITIALIZERS = {
    "beta": v1.constant_initializer(np.arange(6) / 4),
    "gamma": v1.constant_initializer(np.arange(1, 7) / 2),
}


def by_numpy(x, group_of_channel, epsilon, axis=-1):
    """Channel by channel: its group's mean and variance, over each sample."""
    x = np.moveaxis(x.astype(np.float64), axis, -1)
    result = np.empty_like(x)
    for channel, group in enumerate(group_of_channel):
        members = x[..., [other == group for other in group_of_channel]]
        axes = tuple(range(1, x.ndim))
        mean, variance = members.mean(axes, keepdims=True), members.var(axes, keepdims=True)
        normalized = (x[..., [channel]] - mean) / np.sqrt(variance + epsilon)
        result[..., channel] = normalized[..., 0]
    return np.moveaxis(result, -1, axis)


def groups_of(channels, groups, strided):
    return [c % groups if strided else c // (channels // groups) for c in range(channels)]


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_groups(groups, strided, dtype, jit_compile):
    function = tf.function(
        lambda x: group_norm(
            x, groups, center=False, scale=False, strided_channel_grouping=strided, epsilon=0.1
        ),
        jit_compile=jit_compile,
    )
    found = function(X.astype(dtype))
    assert found.dtype == dtype
    tolerance = 5e-3 if dtype == "float16" else 1e-5
    expected = by_numpy(X.astype(dtype), groups_of(6, groups, strided), 0.1)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_strided_groups_are_others():
    strided = group_norm(X, 2)
    assert not np.allclose(strided, group_norm(X, 2, strided_channel_grouping=False), atol=0.1)


@pytest.mark.parametrize("shape", [(2, 6), (2, 4, 6), (1, 3, 2, 2, 6)])
def test_ranks(shape):
    x = np.random.default_rng(1).normal(size=shape).astype("float32")
    found = group_norm(x, 3)
    np.testing.assert_allclose(found, by_numpy(x, groups_of(6, 3, True), 1e-6), atol=1e-3)


@pytest.mark.parametrize("axis", [1, -3, 2, -1])
def test_axes(axis):
    channels = X.shape[axis]
    found = instance_norm(X, channels_axis=axis)
    np.testing.assert_allclose(found, by_numpy(X, range(channels), 1e-6, axis), atol=1e-4)
    found = layer_norm(X, channels_axis=axis)
    np.testing.assert_allclose(found, by_numpy(X, [0] * channels, 1e-6, axis), atol=1e-4)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("norm", "groups"), [(group_norm, 2), (instance_norm, 6), (layer_norm, 1)])
def test_parameters(norm, groups, training):
    found = norm(X, param_initializers=INITIALIZERS, training=training)
    normalized = by_numpy(X, groups_of(6, groups, True), 1e-6)
    expected = normalized * np.arange(1, 7) / 2 + np.arange(6) / 4
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_sums_beyond_the_range_of_float16():
    x = (X * 2000).astype("float16")
    found = layer_norm(x)
    np.testing.assert_allclose(found, by_numpy(x, [0] * 6, 1e-6), rtol=5e-3, atol=5e-3)


def test_a_large_mean_does_not_hide_the_variance():
    x = X + 3000
    np.testing.assert_allclose(instance_norm(x), by_numpy(x, range(6), 1e-6), atol=1e-2)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_equal_numbers_become_zeros(jit_compile):
    def normalized(x):
        ones = tf.ones([64])
        arguments = {"epsilon": 1e-5, "kind": "LayerNorm"}
        return normalized_groups.normalize_axes(x, ones, 0 * ones, axes=[1], **arguments)

    found = tf.function(normalized, jit_compile=jit_compile)(tf.fill([2, 64], 1000.5))
    np.testing.assert_array_equal(found, np.zeros([2, 64]))


@pytest.mark.parametrize("strided", [False, True])
def test_gradients_are_those_of_differences(strided):
    def function(x, gamma, beta):
        return normalized_groups.normalize_groups(
            x,
            gamma,
            beta,
            groups=2,
            channels_axis=1,
            epsilon=0.01,
            strided=strided,
            kind="GroupNorm",
        )[0]

    random = np.random.default_rng(0)
    tensors = [tf.constant(random.normal(size=shape)) for shape in ((2, 4, 3), (4,), (4,))]
    theory, numeric = tf.test.compute_gradient(function, tensors)
    for exact, difference in zip(theory, numeric, strict=True):
        np.testing.assert_allclose(exact, difference, rtol=1e-5, atol=1e-6)


def test_gradients_over_axes_are_those_of_differences():
    def function(x, gamma, beta):
        return normalized_groups.normalize_axes(
            x, gamma, beta, axes=[-1, 1], epsilon=0.01, kind="LayerNorm"
        )

    random = np.random.default_rng(0)
    tensors = [tf.constant(random.normal(size=shape)) for shape in ((2, 3, 2), (3, 2), (3, 2))]
    theory, numeric = tf.test.compute_gradient(function, tensors)
    for exact, difference in zip(theory, numeric, strict=True):
        np.testing.assert_allclose(exact, difference, rtol=1e-5, atol=1e-6)


# -- variables -------------------------------------------------------------------


@pytest.fixture
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def names(variables):
    return sorted(variable.op.name for variable in variables)


def test_variables_and_training_in_a_session(session):
    y = group_norm(tf.constant(X), 3, param_initializers=INITIALIZERS)
    assert names(v1.trainable_variables()) == ["GroupNorm/beta", "GroupNorm/gamma"]
    weights = np.random.default_rng(1).normal(size=X.shape).astype("float32")
    step = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(y * weights))
    session.run(v1.global_variables_initializer())
    (beta,) = (v for v in v1.trainable_variables() if v.op.name.endswith("beta"))
    before = session.run(beta)
    session.run(step)
    # Its gradient is the sum of what reaches each channel.
    expected = before - 0.1 * weights.sum(axis=(0, 1, 2))
    np.testing.assert_allclose(session.run(beta), expected, rtol=1e-4)


def test_each_call_has_a_scope_of_its_own(session):
    for norm in (group_norm, group_norm, instance_norm, layer_norm):
        norm(tf.constant(X), center=False)
    assert names(v1.global_variables()) == [
        "GroupNorm/gamma",
        "GroupNorm_1/gamma",
        "InstanceNorm/gamma",
        "LayerNorm/gamma",
    ]


def test_reuse(session):
    first = group_norm(tf.constant(X), 3, scope="norm", param_initializers=INITIALIZERS)
    second = group_norm(tf.constant(X), 3, scope="norm", reuse=True)
    assert names(v1.global_variables()) == ["norm/beta", "norm/gamma"]
    session.run(v1.global_variables_initializer())
    np.testing.assert_array_equal(*session.run([first, second]))
    with pytest.raises(ValueError, match=r"give the `scope`.*reuse=True, scope=None"):
        group_norm(tf.constant(X), 3, reuse=True)


def test_collections_and_variables_that_are_not_trained(session):
    group_norm(tf.constant(X), variables_collections=["norms"], trainable=False)
    instance_norm(tf.constant(X), variables_collections={"beta": ["offsets"]}, scale=True)
    assert names(v1.get_collection("norms")) == ["GroupNorm/beta", "GroupNorm/gamma"]
    assert names(v1.get_collection("offsets")) == ["InstanceNorm/beta"]
    assert names(v1.trainable_variables()) == ["InstanceNorm/beta", "InstanceNorm/gamma"]
    assert len(v1.global_variables()) == 4


def test_variables_have_the_type_of_the_inputs(session):
    layer_norm(tf.constant(X.astype("float16")))
    assert {variable.dtype.base_dtype for variable in v1.global_variables()} == {tf.float16}


def test_what_reports_call_them():
    for training, kind in ((True, "GroupNorm"), (False, "GroupNormInference")):
        graph = tf.Graph()
        with graph.as_default():
            group_norm(tf.constant(X), training=training, center=False, scale=False)
        assert any(f"/poplar.{kind}/" in op.name for op in graph.get_operations())


# -- mistakes --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        (7, r"Invalid groups 7 for 6 channels\."),
        (0, r"Invalid groups 0 for 6 channels\."),
        (4, r"6 channels is not commensurate with 4 groups\."),
    ],
)
def test_groups_that_do_not_fit(groups, text):
    with pytest.raises(ValueError, match=text):
        group_norm(X, groups)


@pytest.mark.parametrize("norm", [group_norm, instance_norm, layer_norm])
def test_inputs_that_do_not_fit(norm):
    def traced(*shape):
        spec = tf.TensorSpec(None if shape == (...,) else shape)
        tf.function(norm).get_concrete_function(spec)

    with pytest.raises(ValueError, match=r"Inputs .* has undefined rank\."):
        traced(...)
    with pytest.raises(ValueError, match="number of channels must be known"):
        traced(2, None)
    with pytest.raises(ValueError, match=r"at least 2 dimensions.*\(6,\)"):
        norm(X[0, 0, 0])
    for axis in (0, -4):
        with pytest.raises(ValueError, match=f"after the first.*channels_axis={axis} "):
            norm(X, channels_axis=axis)
    with pytest.raises(ValueError, match=r"^Axis is out of bounds\.\nReceived: channels_axis=4 "):
        norm(X, channels_axis=4)
    with pytest.raises(ValueError, match=r"by the names 'beta' and 'gamma'.*\{'bias': None\}"):
        norm(X, param_initializers={"bias": None})
    for argument, value in (
        ("inputs", [1, 2]),
        ("channels_axis", 1.5),
        ("center", "yes"),
        ("trainable", None),
        ("training", [True]),
        ("param_initializers", [1]),
    ):
        with pytest.raises(TypeError, match=rf"^`{argument}` must be "):
            norm(**{"inputs": X, argument: value})
    for epsilon in (-1, "1", None):
        with pytest.raises(ValueError, match=rf"^`epsilon` must be .* epsilon={epsilon!r}$"):
            norm(X, epsilon=epsilon)


@pytest.mark.parametrize("module", [normalized_groups, normalization_ops])
def test_examples(module):
    assert doctest.testmod(module).failed == 0

"""Group, instance and layer normalisation as layers, against Keras's own and NumPy."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_battery import run_layer_battery

from ipu_keras.keras.layers import (
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    channel_normalization,
    group_normalization,
    instance_normalization,
    layer_normalization,
)

X = np.random.default_rng(0).normal(2.0, 3.0, (2, 3, 5, 6)).astype("float32")


def trained(layer, x):
    """The layer with weights that are neither 0 nor 1."""
    layer.build(x.shape)
    random = np.random.default_rng(1)
    layer.set_weights([random.normal(size=w.shape) for w in layer.get_weights()])
    return layer


@pytest.mark.parametrize(
    ("layer", "arguments", "num_weights"),
    [
        (GroupNormalization, {"groups": 3, "strided_channel_grouping": False, "center": False}, 1),
        (GroupNormalization, {"groups": 1, "channels_axis": 1, "gamma_initializer": "uniform"}, 2),
        (InstanceNormalization, {"channels_axis": 1, "epsilon": 0.1, "scale": False}, 1),
        (LayerNormalization, {"axis": [1, -1], "beta_initializer": "normal"}, 2),
    ],
)
def test_battery(strategy, layer, arguments, num_weights):
    run_layer_battery(
        strategy,
        layer,
        arguments,
        input_shape=(2, 3, 6),
        expected_output_shape=(2, 3, 6),
        expected_num_trainable_weights=num_weights,
        supports_masking=True,
    )


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_neighbouring_channels_as_in_keras(groups):
    ours = trained(GroupNormalization(groups=groups, strided_channel_grouping=False), X)
    stock = trained(keras.layers.GroupNormalization(groups), X)
    np.testing.assert_allclose(ours(X), stock(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [2, 3])
def test_strided_groups(groups):
    """Every `groups`-th channel: neighbours, once the channels are put in that order."""
    order = [channel for first in range(groups) for channel in range(first, 6, groups)]
    strided = GroupNormalization(groups=groups)(X)
    consecutive = GroupNormalization(groups=groups, strided_channel_grouping=False)(X[..., order])
    np.testing.assert_allclose(strided.numpy()[..., order], consecutive, rtol=1e-4, atol=1e-5)
    neighbours = GroupNormalization(groups=groups, strided_channel_grouping=False)(X)
    assert not np.allclose(strided, neighbours, atol=0.1)


def test_instances_as_groups_of_one():
    ours = trained(InstanceNormalization(), X)
    stock = trained(keras.layers.GroupNormalization(-1), X)
    np.testing.assert_allclose(ours(X), stock(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [-1, 1, [2, 3], [1, 3], [1, 2, 3]])
def test_layers_as_in_keras(axis):
    ours = trained(LayerNormalization(axis=axis), X)
    stock = trained(keras.layers.LayerNormalization(axis=axis), X)
    assert [w.shape for w in ours.weights] == [w.shape for w in stock.weights]
    np.testing.assert_allclose(ours(X), stock(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", [GroupNormalization, InstanceNormalization, LayerNormalization])
def test_types(layer):
    """Statistics of float16 are in float32: sums of these would exceed its range."""
    x = (X * 1000).astype("float16")
    expected = layer()(x.astype("float32"))
    half = layer(dtype=tf.float16)
    found = half(x)
    assert found.dtype == half.gamma.dtype == "float16"
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)


def test_mixed_precision_is_of_the_global_policy():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        layer = GroupNormalization()
        exact = GroupNormalization(dtype="float32")
        half = GroupNormalization(tf.float16)
    finally:
        keras.config.set_dtype_policy("float32")
    assert (layer.compute_dtype, layer.variable_dtype) == ("float16", "float32")
    assert (exact.compute_dtype, exact.variable_dtype) == ("float32", "float32")
    assert (half.compute_dtype, half.variable_dtype) == ("float16", "float16")


@pytest.mark.parametrize("layer", [GroupNormalization, InstanceNormalization, LayerNormalization])
def test_open_sizes_while_a_model_is_made(layer):
    inputs = keras.Input((None, None, 6))
    model = keras.Model(inputs, layer()(inputs))
    assert model.output_shape == (None, None, None, 6)
    np.testing.assert_allclose(model(X), layer()(X), rtol=1e-5, atol=1e-6)


def test_regularizers_and_constraints_of_layer_normalization():
    layer = LayerNormalization(
        beta_regularizer=keras.regularizers.L1(0.5),
        gamma_regularizer="l2",
        gamma_constraint="non_neg",
        beta_constraint="unit_norm",
        beta_initializer="ones",
    )
    layer.build((2, 6))
    assert [float(loss) for loss in layer.losses] == pytest.approx([6 * 0.01, 3.0])
    assert isinstance(layer.gamma.constraint, keras.constraints.NonNeg)
    assert isinstance(layer.beta.constraint, keras.constraints.UnitNorm)


def test_weights_that_are_not_trained():
    layer = InstanceNormalization(trainable=False)
    layer.build((2, 5, 6))
    assert (len(layer.trainable_weights), len(layer.non_trainable_weights)) == (0, 2)


def test_groups_that_do_not_fit():
    with pytest.raises(ValueError, match=r"Invalid groups 7 for 6 channels\."):
        GroupNormalization(groups=7)(X)
    with pytest.raises(ValueError, match=r"6 channels is not commensurate with 4 groups\."):
        GroupNormalization(groups=4).build((None, 6))


def test_axes_that_do_not_fit():
    for axis in (0, -4):
        with pytest.raises(ValueError, match=rf"after the first.*channels_axis={axis} "):
            InstanceNormalization(channels_axis=axis)(X)
    with pytest.raises(ValueError, match=r"Axis is out of bounds\.\nReceived: channels_axis=4 "):
        InstanceNormalization(channels_axis=4)(X)
    with pytest.raises(ValueError, match="number of channels must be known"):
        GroupNormalization().build((2, None))
    for axis in (4, [1, 1], [], [-1, 3]):
        with pytest.raises(ValueError, match="each of them once"):
            LayerNormalization(axis=axis)(X)
    with pytest.raises(ValueError, match=r"sizes of the axes must be known.*axis=1"):
        LayerNormalization(axis=1).build((2, None, 3))


def test_the_first_argument_is_the_type():
    with pytest.raises(TypeError, match=r"give others by name\. Received: dtype=4"):
        GroupNormalization(4)


@pytest.mark.parametrize("layer", [GroupNormalization, InstanceNormalization, LayerNormalization])
@pytest.mark.parametrize("dtype", [tf.string, tf.int32, tf.bool])
def test_weights_are_of_a_floating_point_type(layer, dtype):
    with pytest.raises(TypeError, match="`dtype` is the data type of the weights, which must be"):
        layer(dtype=dtype)


@pytest.mark.parametrize(
    "module",
    [channel_normalization, group_normalization, instance_normalization, layer_normalization],
)
def test_examples(module):
    assert doctest.testmod(module).failed == 0

"""What the optimizers have in common: training on an IPU, saving, and older arguments."""

import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_addons.keras.optimizers import AdamIpuOptimizer, LAMBIpuOptimizer, SGDIpuOptimizer

PAIRS = {
    "adam": (AdamIpuOptimizer, keras.optimizers.Adam, {}),
    "lamb": (LAMBIpuOptimizer, keras.optimizers.Lamb, {"epsilon": 1e-6}),
    "sgd": (SGDIpuOptimizer, keras.optimizers.SGD, {"momentum": 0.9}),
}
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture(scope="module")
def data():
    """64 samples of 6 features in 3 classes."""
    random = np.random.default_rng(0)
    x = random.normal(size=(64, 6)).astype("float32")
    return x, np.argmax(x @ random.normal(size=(6, 3)), axis=1).astype("int32")


def classifier(optimizer, accumulation=None, steps=4):
    """6 features to 3 classes. Not compiled by XLA, which takes most of a small test's time."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input([6]), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)]
    )
    if accumulation is not None:
        model.set_gradient_accumulation_options(
            gradient_accumulation_steps_per_replica=accumulation
        )
    model.compile(optimizer, LOSS, steps_per_execution=steps, jit_compile=False)
    return model


@pytest.mark.parametrize(("num_replicas", "accumulation"), [(1, None), (2, 2)])
@pytest.mark.parametrize("name", PAIRS)
def test_fit_as_with_the_optimizer_of_keras(ipu_scope, data, name, num_replicas, accumulation):
    make, stock, options = PAIRS[name]
    histories, weights = [], []
    for optimizer in (make, stock):
        with ipu_scope(num_replicas):
            model = classifier(optimizer(0.01, **options), accumulation)
        history = model.fit(*data, batch_size=8, epochs=2, shuffle=False, verbose=0)
        histories.append(history.history["loss"])
        weights.append(model.get_weights())
        devices = {v.value.device.rpartition(":")[2] for v in model.optimizer.variables}
        assert devices == {str(num_replicas - 1)}
    np.testing.assert_allclose(*histories, rtol=1e-5)
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "optimizer",
    [
        AdamIpuOptimizer(0.01, amsgrad=True, m_dtype="float16", vhat_dtype="float16", decay=0.1),
        LAMBIpuOptimizer(0.01, v_dtype="float16", exclude_from_weight_decay=["bias"]),
        SGDIpuOptimizer(0.01, momentum=0.5, momentum_accum_dtype="float16"),
    ],
    ids=PAIRS,
)
# Stock Keras saves a variable with np.array(), whose `copy` argument TensorFlow's
# __array__ does not know yet; it warns on the CPU as well.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_saved_model_goes_on_as_before(tmp_path, ipu_scope, data, optimizer):
    with ipu_scope():
        model = classifier(type(optimizer).from_config(optimizer.get_config()))
    model.fit(*data, batch_size=8, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    with ipu_scope():
        loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    pairs = list(zip(loaded.optimizer.variables, model.optimizer.variables, strict=True))
    for one, other in pairs:
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert any(one.dtype == "float16" for one, _ in pairs)
    for each in (loaded, model):
        each.fit(*data, batch_size=8, shuffle=False, verbose=0)
    for one, other in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_mixed_precision_with_a_scaled_loss(ipu_scope, data):
    with ipu_scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [
                keras.Input([6]),
                keras.layers.Dense(8, "relu", dtype="mixed_float16"),
                keras.layers.Dense(3, dtype="mixed_float16"),
            ]
        )
        inner = AdamIpuOptimizer(0.02, m_dtype="float16")
        optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=128.0)
        model.compile(optimizer, LOSS, steps_per_execution=8, jit_compile=False)
    losses = model.fit(*data, batch_size=8, epochs=4, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]


def test_schedule():
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0], [1.0, 0.25])
    optimizer, weight = SGDIpuOptimizer(schedule), keras.Variable([0.0])
    for _ in range(2):
        optimizer.apply([[-1.0]], [weight])
    assert weight.numpy().tolist() == [1.25]
    config = SGDIpuOptimizer.from_config(optimizer.get_config()).get_config()
    assert config == optimizer.get_config()


@pytest.mark.parametrize(
    "rate", [1, np.float32(1.0), np.array(1.0), tf.constant(1.0)], ids=lambda x: type(x).__name__
)
def test_learning_rates_of_all_kinds(rate):
    optimizer, weight = SGDIpuOptimizer(rate), keras.Variable([0.0])
    optimizer.apply([[-1.0]], [weight])
    assert weight.numpy().tolist() == [1.0]


def test_learning_rate_of_a_function():
    optimizer, weight = SGDIpuOptimizer(lambda: 0.5), keras.Variable([0.0])
    optimizer.apply([[-1.0]], [weight])
    assert weight.numpy().tolist() == [0.5]


def test_lr_and_decay():
    optimizer, weight = SGDIpuOptimizer(lr=1.0, decay=0.5), keras.Variable([0.0])
    found = []
    for _ in range(3):
        optimizer.apply([[-1.0]], [weight])
        found.append(float(weight.numpy()[0]))
    np.testing.assert_allclose(np.diff([0.0, *found]), [1.0, 1 / 1.5, 1 / 2], rtol=1e-6)
    # Callbacks that change the rate must see what was set.
    assert float(optimizer.lr) == float(optimizer.learning_rate) == 1.0
    optimizer.lr = 2.0
    assert float(optimizer.learning_rate) == 2.0
    assert SGDIpuOptimizer.from_config(optimizer.get_config()).decay == 0.5


@pytest.mark.parametrize(
    ("clipping", "expected"),
    [
        ({"clipvalue": 2.0}, [-2.0, -2.0, -1.0]),
        ({"clipnorm": 2.5}, [-1.5, -2.0, -1.0]),
        ({"global_clipnorm": math.sqrt(26) / 2}, [-1.5, -2.0, -0.5]),
    ],
)
def test_clipping(clipping, expected):
    weights = [keras.Variable([0.0, 0.0]), keras.Variable([0.0])]
    SGDIpuOptimizer(1.0, **clipping).apply([tf.constant([3.0, 4.0]), tf.constant([1.0])], weights)
    found = np.concatenate([weight.numpy() for weight in weights])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_decay_and_weight_decay_exclude_each_other():
    with pytest.raises(ValueError, match=r"^`decay` and `weight_decay` cannot be combined\. "):
        AdamIpuOptimizer(decay=0.1, weight_decay=0.1)
    with pytest.raises(ValueError, match=r"^`decay` must be .* not negative\. Received: decay=-1"):
        AdamIpuOptimizer(decay=-1)
    with pytest.raises(ValueError, match=r"not recognized: .*'betas'"):
        AdamIpuOptimizer(betas=(0.9, 0.99))


def test_outlining_says_that_it_has_no_effect():
    message = "`outline_apply_gradients` has no effect here: "
    for options in (
        {"outline_apply_gradients": True},
        {"outline_apply_gradients_kwargs": {"unique_sharding": True}},
    ):
        with pytest.warns(UserWarning, match=f"^{re.escape(message)}") as caught:
            optimizer = SGDIpuOptimizer(**options)
        assert caught[0].filename == __file__
        assert optimizer.get_config().items() >= options.items()
    assert SGDIpuOptimizer(outline_apply_gradients=False).outline_apply_gradients is False
    with pytest.raises(TypeError, match="Received: outline_apply_gradients=1"):
        SGDIpuOptimizer(outline_apply_gradients=1)
    with pytest.raises(TypeError, match="Received: outline_apply_gradients_kwargs=True"):
        SGDIpuOptimizer(outline_apply_gradients_kwargs=True)


def test_a_rate_decays_over_more_steps_than_float16_has():
    """100,000 is infinite in float16, and a rate that is divided by it 0."""
    optimizer, weight = SGDIpuOptimizer(0.5, decay=1e-5), keras.Variable([0.0], dtype="float16")
    optimizer.build([weight])
    optimizer.iterations.assign(100_000)
    rate = optimizer.current_rate(tf.constant(0.5), "float16")
    assert (rate.dtype, float(rate)) == (tf.float16, 0.25)

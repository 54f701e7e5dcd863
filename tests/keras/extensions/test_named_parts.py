"""Names of what a step computes besides its layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_keras
from ipu_keras.cost.pipeline.shards import COPY_FAMILY
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras.extensions.named_parts import named_metrics, with_named_parts
from ipu_keras.tracing import layer_scopes

FEATURES = tf.TensorSpec((8, 16))
LABELS = tf.TensorSpec((8,), tf.int32)
ARRAYS = np.ones((32, 16), "float32"), np.zeros(32, "int32")

OF_STEP = {
    "model/first",
    "model/block/second",
    "model/last",
    "compile_loss/sparse_categorical_crossentropy",
    "metrics/loss",
    "metrics/accuracy",
    "metrics/top_2__best_",
}
# Layers have a gradient; metrics have none.
OF_TRAINING = OF_STEP | {"adam", "model/first/regularizer", "model/block/second/regularizer"}


def nested(name="model"):
    """Two layers with punished weights, one of them in a model of its own."""
    inputs = keras.Input((16,))
    x = keras.layers.Dense(
        8, kernel_regularizer="l2", bias_regularizer="l1", activation="relu", name="first"
    )(inputs)
    second = keras.layers.Dense(8, kernel_regularizer="l1", name="second")
    x = keras.Sequential([keras.Input((8,)), second], name="block")(x)
    return keras.Model(inputs, keras.layers.Dense(3, name="last")(x), name=name)


def compiled(model, **options):
    metrics = keras.metrics
    model.compile(
        keras.optimizers.Adam(name="adam"),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[
            "accuracy",
            metrics.SparseTopKCategoricalAccuracy(2, name="top 2 (best)"),
        ],
        **options,
    )
    return model


def layers(report):
    return {row.layer for row in report.rows} - {""}


def in_strategy(strategy, **options):
    with strategy.scope():
        return compiled(nested(), **options)


@pytest.mark.parametrize("inside", [False, True])
def test_rows_of_profile(strategy, inside):
    model = in_strategy(strategy) if inside else compiled(nested())
    trained = ipu_keras.profile(model, FEATURES, LABELS)
    assert layers(trained) == OF_TRAINING
    backward = {row.layer for row in trained.rows if row.backward}
    assert "model/first/regularizer" in backward
    assert not {name for name in backward if name.startswith("metrics/")}
    tested = ipu_keras.profile(model, FEATURES, LABELS, mode="test")
    assert layers(tested) == OF_TRAINING - {"adam"}
    assert layers(ipu_keras.profile(model, FEATURES)) == {
        "model/first",
        "model/block/second",
        "model/last",
    }


@pytest.mark.parametrize("jit_compile", ["auto", False])  # `False` is traced again for a report
def test_rows_of_what_ran(strategy, jit_compile):
    model = in_strategy(strategy, jit_compile=jit_compile)
    model.fit(*ARRAYS, batch_size=8, verbose=0)
    report = ipu_keras.last_report()
    assert report.name == f"{model.name}.train"
    assert layers(report) == OF_TRAINING
    model.evaluate(*ARRAYS, batch_size=8, verbose=0)
    assert layers(ipu_keras.last_report()) == OF_TRAINING - {"adam"}


def test_rows_with_accumulation(strategy):
    model = in_strategy(strategy, steps_per_execution=4)
    model.set_gradient_accumulation_options(4)
    model.fit(*ARRAYS, batch_size=8, verbose=0)
    assert layers(ipu_keras.last_report()) == OF_TRAINING
    assert layers(ipu_keras.profile(model, FEATURES, LABELS)) == OF_TRAINING


def test_a_punished_weight_stays_in_its_stage(strategy):
    """Else its kernel, 16 x 8 numbers, would be copied to the IPU that adds up the losses."""
    model = in_strategy(strategy)
    assignment = model.get_pipeline_stage_assignment()
    for one, stage in zip(assignment, (0, 1, 1), strict=True):
        one.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignment)
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    report = ipu_keras.profile(model, FEATURES, LABELS)
    for layer, stage in (("model/first", 0), ("model/block/second", 1)):
        found = [row for row in report.rows if row.layer == f"{layer}/regularizer"]
        assert {row.stage for row in found if not row.weight_update} == {stage}
    copies = [one for one in report.model.program.compute_sets if one.family == COPY_FAMILY]
    # Activations of 8 samples, and what the kernel and the bias are punished with.
    assert max(one.bytes_read for one in copies) == (8 * 8 + 2) * 4


def two_outputs():
    inputs = keras.Input((4,))
    outputs = [keras.layers.Dense(1, name=name)(inputs) for name in "ab"]
    model = keras.Model(inputs, outputs, name="two")
    mean = keras.metrics.MeanSquaredError
    model.compile(
        "sgd",
        ["mse", "mae"],
        metrics=[["mae", mean(name="mean/error")], ["mae"]],
        weighted_metrics=[["mae"], []],
    )
    return model


def test_metrics_have_the_names_of_logs():
    model = two_outputs()
    ones = np.ones((8, 1), "float32")
    history = model.fit(np.ones((8, 4)), [ones, ones], sample_weight=[ones, ones], verbose=0)
    found = named_metrics(model)
    assert set(found) == set(history.history)
    assert found["b_mae"] is not found["a_mae"] is not found["a_weighted_mae"]
    of_losses = {model._loss_tracker, *model._compile_loss.metrics}
    assert {found[name] for name in ("loss", "a_loss", "b_loss")} == of_losses
    one = tf.TensorSpec((8, 1))
    rows = layers(
        ipu_keras.profile(model, tf.TensorSpec((8, 4)), (one, one), (one, one), mode="test")
    )
    assert {name for name in rows if name.startswith("metrics/")} == {
        f"metrics/{name.replace('/', '_')}" for name in history.history
    }


def test_metrics_of_one_name_are_numbered():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    first, second = (keras.metrics.Mean(name="same") for _ in range(2))
    model.first, model.second = first, second
    assert named_metrics(model) == {"same": first, "same_1": second}


def test_metrics_that_are_not_built_have_no_name_yet():
    model = compiled(nested())
    assert list(named_metrics(model)) == ["loss"]


def traced_names(model, step, *specs):
    """Names of the operations of a step."""
    with layer_scopes():
        function = tf.function(with_named_parts(model, step), autograph=False)
        graph = function.get_concrete_function(*specs).graph
    return [operation.name for operation in graph.get_operations()]


def test_punished_weights_of_layers_that_were_not_called():
    """Their layers have no scope, nor those that were called in another function."""
    model = nested()
    called = tf.function(lambda x: model.layers[1](x))

    def step(x):
        called(x)
        return tf.add_n(model.losses)

    names = traced_names(model, step, FEATURES)
    assert "regularization_losses/Square" in names
    assert not [name for name in names if "/regularizer/" in name]


def test_punished_weights_of_cells_and_of_the_model_itself():
    """Weights without a layer of their own to be named after are those of the next around."""

    class Own(keras.Model):
        def __init__(self):
            super().__init__(name="own")
            self.inner = keras.layers.LSTM(2, kernel_regularizer="l2", name="lstm")

        def build(self, shape):
            self.scale = self.add_weight(name="scale", shape=(), regularizer="l1")
            self.inner.build(shape)

        def call(self, x):
            return self.inner(x) * self.scale

    model = Own()
    model(tf.zeros((2, 3, 4)))

    def step(x):
        y = model(x)
        return y, tf.add_n(model.losses)

    names = traced_names(model, step, tf.TensorSpec((2, 3, 4)))
    assert [name for name in names if name.endswith("/Square")] == [
        "own/lstm/lstm_cell/regularizer/Square"
    ]
    assert "own/regularizer/Abs" in names


def test_everything_is_as_before_afterwards():
    model = compiled(nested())
    ipu_keras.profile(model, FEATURES, LABELS)
    metrics = list(named_metrics(model).values())
    punished = [w for w in model.trainable_weights if w.regularizer is not None]
    regularizers = [weight.regularizer for weight in punished]
    assert len(metrics) == 3
    assert len(punished) == 3

    def check():
        for metric in metrics:
            assert not {"update_state", "result"} & set(vars(metric))
        assert [weight.regularizer for weight in punished] == regularizers

    def step(x):
        assert "update_state" in vars(metrics[0])
        assert punished[0].regularizer is not regularizers[0]
        raise RuntimeError("in the step")

    check()
    with pytest.raises(RuntimeError, match="in the step"):
        with_named_parts(model, step)(None)
    check()


def test_a_user_s_own_attribute_is_put_back():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    metric = keras.metrics.Mean(name="mine")
    model.mine = metric

    def result():
        return 3

    object.__setattr__(metric, "result", result)
    assert with_named_parts(model, lambda _: metric.result())(None) == 3
    assert vars(metric)["result"] is result


def scaled(strategy, **options):
    """The model with loss scaling, which is an optimizer around Adam."""
    with strategy.scope():
        model = compiled(nested(), **options)
        model.optimizer = keras.optimizers.LossScaleOptimizer(model.optimizer, name="scale")
    return model


def assert_untouched(optimizer):
    changed = {"apply", "scale_loss", "check_finite", "_stateful_handle_finite_grads"}
    assert not changed & set(vars(optimizer))
    assert not changed & set(vars(optimizer.inner_optimizer))


OF_SCALED = OF_TRAINING | {"scale"}


def test_rows_of_a_loss_scale(strategy):
    model = scaled(strategy)
    report = ipu_keras.profile(model, FEATURES, LABELS)
    assert layers(report) == OF_SCALED
    rows = [row for row in report.rows if row.layer == "scale"]
    # The loss is scaled, and its gradient too.
    assert {row.backward for row in rows} == {False, True}
    # Whether each of 6 gradients is finite, and whether all of them are.
    assert len([row for row in rows if row.family == "reduce"]) == 7
    model.fit(*ARRAYS, batch_size=8, verbose=0)
    assert layers(ipu_keras.last_report()) == OF_SCALED
    assert_untouched(model.optimizer)
    tested = ipu_keras.profile(model, FEATURES, LABELS, mode="test")
    assert layers(tested) == OF_TRAINING - {"adam"}


def test_a_loss_scale_is_a_part_of_the_weight_update(strategy):
    model = scaled(strategy, steps_per_execution=4)
    model.set_gradient_accumulation_options(4)
    model.fit(*ARRAYS, batch_size=8, verbose=0)
    for report in (ipu_keras.profile(model, FEATURES, LABELS), ipu_keras.last_report()):
        assert layers(report) == OF_SCALED
        rows = [row for row in report.rows if row.layer == "scale" and row.family == "reduce"]
        assert len(rows) == 7
        assert all(row.weight_update for row in rows)


def test_a_loss_scale_of_a_train_step_of_ones_own_on_replicas(strategy):
    """Gradients are added over replicas by a change of the same method of the optimizer."""

    class Own(keras.Sequential):
        def train_step(self, data):
            return super().train_step(data)

    with IPUStrategy("/device:IPU:2").scope():
        model = Own([keras.Input((16,)), keras.layers.Dense(3, name="last")], name="own")
        inner = keras.optimizers.SGD(0.5, name="sgd")
        model.compile(
            keras.optimizers.LossScaleOptimizer(inner, initial_scale=4.0, name="scale"), "mse"
        )
    model.fit(np.ones((16, 16), "float32"), np.ones((16, 3), "float32"), batch_size=8, verbose=0)
    assert {"scale", "sgd"} <= layers(ipu_keras.last_report(2))
    assert_untouched(model.optimizer)

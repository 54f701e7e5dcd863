import copy
import doctest
import inspect
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import LOSS, assert_same, devices_of
from plain_training import train

from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras import Model, PipelineStage
from ipu_keras.keras.legacy import model as model_module

# Stock Keras saves a variable with np.array(), whose `copy` argument TensorFlow's
# __array__ does not know yet; it warns on the CPU as well.
READS_VARIABLES = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


def test_the_example(no_system):
    assert doctest.testmod(model_module).failed == 0


def stock_model():
    keras.utils.set_random_seed(1)
    inputs = keras.Input([6])
    x = keras.layers.Dense(5, "tanh")(inputs)
    return keras.Model(inputs, keras.layers.Dense(3)(x))


def legacy_model(**options):
    keras.utils.set_random_seed(1)
    inputs = keras.Input([6])
    x = keras.layers.Dense(5, "tanh")(inputs)
    return Model(inputs, keras.layers.Dense(3)(x), **options)


def compiled(model, optimizer="sgd", **options):
    model.compile(optimizer, LOSS, metrics=["accuracy"], jit_compile=False, **options)
    return model


def optimizer_of(kind):
    return keras.optimizers.Adam(0.01) if kind == "adam" else keras.optimizers.SGD(0.02, 0.9)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize(("num_ipus", "count"), [(1, 1), (1, 4), (2, 1), (2, 4)])
def test_training_adds_the_gradients_of_batches_and_replicas(
    strategies, data, kind, num_ipus, count
):
    stock = stock_model()
    with strategies[num_ipus].scope():
        model = compiled(legacy_model(gradient_accumulation_count=count), optimizer_of(kind))
        model.fit(*data, batch_size=2, epochs=3, shuffle=False, verbose=0)
    train(
        stock,
        LOSS,
        optimizer_of(kind),
        *data,
        batch_size=2,
        batches_per_update=num_ipus * count,
        epochs=3,
    )
    assert_same(model.get_weights(), stock.get_weights())
    assert int(model.optimizer.iterations) == 3 * 32 // (num_ipus * count)
    assert devices_of(model.weights) == {f"IPU:{num_ipus - 1}"}


def test_evaluation_and_prediction(strategies, data):
    stock = compiled(stock_model())
    with strategies[1].scope():
        model = compiled(legacy_model(gradient_accumulation_count=4))
        # 3 batches: without weight updates nothing is accumulated.
        x, y = (part[:24] for part in data)
        assert_same(
            model.evaluate(x, y, batch_size=8, verbose=0),
            stock.evaluate(x, y, batch_size=8, verbose=0),
        )
        assert_same(model.predict(x, batch_size=8, verbose=0), stock.predict(x, verbose=0))
        assert_same(
            model.predict(x, batch_size=8, steps=2, verbose=0), stock.predict(x[:16], verbose=0)
        )


def test_callbacks_and_history_count_weight_updates(strategies, data, steps, capsys):
    with strategies[2].scope():
        model = compiled(legacy_model(gradient_accumulation_count=2))
        history = model.fit(
            *data,
            batch_size=4,
            epochs=2,
            validation_data=data,
            validation_batch_size=8,
            callbacks=[steps],
        )
        model.predict(data[0], batch_size=16, verbose=0, callbacks=[steps])
    # 16 batches of two replicas, in twos; evaluation has 8, prediction 4 for both replicas.
    epoch = [("begin", 0, 4), ("end", 3, 4), ("test", 3, 4)]
    assert steps.seen == [*epoch, *epoch, ("predict", 1, 2)]
    assert history.params["steps"] == 4
    assert sorted(history.history) == ["accuracy", "loss", "val_accuracy", "val_loss"]
    assert history.epoch == [0, 1]
    assert "4/4" in capsys.readouterr().out


def test_an_epoch_is_one_execution(strategies, data):
    counters = strategies[1].device.engine.counters
    before = counters()
    with strategies[1].scope():
        model = compiled(legacy_model(gradient_accumulation_count=2))
        model.fit(*data, batch_size=4, epochs=3, verbose=0)
    after = counters()
    assert after.num_executions["train"] - before.num_executions.get("train", 0) == 3
    assert after.num_steps["train"] - before.num_steps.get("train", 0) == 48


def test_steps_per_epoch_are_those_of_all_replicas(strategies, data):
    repeated = tf.data.Dataset.from_tensor_slices(data).batch(8, drop_remainder=True).repeat()
    with strategies[2].scope():
        model = compiled(legacy_model(gradient_accumulation_count=2))
        history = model.fit(repeated, epochs=2, steps_per_epoch=6, shuffle=False, verbose=0)
        assert history.params["steps"] == 3
        assert int(model.optimizer.iterations) == 6
        assert len(model.predict(repeated.map(lambda x, y: x), steps=6, verbose=0)) == 6 * 8


def test_stages_have_no_effect(strategies, data):
    with strategies[1].scope():
        inputs = keras.Input([6])
        with PipelineStage(0):
            x = keras.layers.Dense(5, "tanh")(inputs)
        with PipelineStage(1):
            outputs = keras.layers.Dense(3)(x)
        model = compiled(Model(inputs, outputs))
        model.fit(*data, batch_size=8, verbose=0)
    assert int(model.optimizer.iterations) == 8


def test_accumulators_have_the_type_asked_for(strategies, data):
    def float16(weight):
        asked.append(weight.path)
        return tf.float16

    asked = []
    options = {"gradient_accumulation_count": 2, "gradient_accumulation_dtype": float16}
    with strategies[1].scope():
        model = compiled(legacy_model(**options))
        model.fit(*data, batch_size=8, verbose=0)
    assert set(asked) == {weight.path for weight in model.weights}


@READS_VARIABLES
def test_weights_can_be_saved(strategies, data, tmp_path):
    path = tmp_path / "of.weights.h5"
    with strategies[1].scope():
        model = compiled(legacy_model())
        checkpoint = keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
        model.fit(*data, batch_size=8, verbose=0, callbacks=[checkpoint])
        other = legacy_model()
    other.load_weights(path)
    assert_same(other.get_weights(), model.get_weights())


@READS_VARIABLES
def test_tensorboard(strategies, data, tmp_path):
    with strategies[1].scope():
        model = compiled(legacy_model())
        model.fit(*data, batch_size=8, verbose=0, callbacks=[keras.callbacks.TensorBoard(tmp_path)])
    assert list(tmp_path.rglob("events*"))


def test_direct_calls(strategies, data):
    x, y = data
    message = (
        "Model can only be called through the `fit`, `evaluate` or `predict` interfaces.\nFor a "
        "training loop of your own, or as a part of another model, use a `keras.Model`."
    )
    with strategies[1].scope():
        model = compiled(legacy_model())
        model.fit(x, y, batch_size=8, verbose=0)
        for call in (
            lambda: model(x),
            lambda: model(keras.Input([6])),
            lambda: strategies[1].run(tf.function(lambda: model(x))),
            lambda: model.train_on_batch(x, y),
            lambda: model.test_on_batch(x, y),
            lambda: model.predict_on_batch(x),
        ):
            with raises(ValueError, message):
                call()


def test_saving(strategies, tmp_path):
    message = (
        "IPU Keras models do not support the `save` interface.\nSave the weights with "
        "`save_weights`, and load them into a model made by the same code. Received: Model mine"
    )
    with strategies[1].scope():
        model = compiled(legacy_model(name="mine"))
    for save in (
        lambda: model.save(tmp_path / "a.keras"),
        lambda: keras.saving.save_model(model, tmp_path / "b.keras"),
        lambda: model.to_json(),
        lambda: copy.deepcopy(model),
    ):
        with raises(NotImplementedError, message):
            save()
    assert not (tmp_path / "a.keras").exists()


def test_outside_of_a_strategy(strategies, data):
    message = (
        "Model can only be used on an IPU device.\nCall `fit`, `evaluate` and `predict` inside"
    )
    with strategies[1].scope():
        model = compiled(legacy_model())
    for run in (model.fit, model.evaluate):
        with raises(ValueError, message):
            run(*data, batch_size=8, verbose=0)
    with raises(ValueError, message):
        model.predict(data[0], batch_size=8, verbose=0)
    with (
        IPUStrategy("/device:CPU:0").scope(),
        raises(ValueError, "Model can only be used on an IPU device.\nReceived: a strategy on "),
    ):
        compiled(legacy_model()).fit(*data, batch_size=8, verbose=0)


@pytest.mark.parametrize("compiled_in_scope", [False, True])
@pytest.mark.parametrize("use", ["fit", "evaluate", "predict"])
def test_a_model_made_outside_of_a_scope_moves_to_the_first(
    strategies, data, compiled_in_scope, use
):
    x, y = data

    def normalized():
        inputs = keras.Input([6])
        hidden = keras.layers.BatchNormalization()(keras.layers.Dense(5, "tanh")(inputs))
        return inputs, keras.layers.Dense(3)(hidden)

    keras.utils.set_random_seed(1)
    stock = compiled(keras.Model(*normalized()), keras.optimizers.SGD(0.02, 0.9))
    keras.utils.set_random_seed(1)
    model = Model(*normalized())
    message = (
        "Model can only be used on an IPU device.\nCall `fit`, `evaluate` and `predict` inside"
    )
    if not compiled_in_scope:
        compiled(model, keras.optimizers.SGD(0.02, 0.9))
        for run in (model.fit, model.evaluate):
            with raises(ValueError, message):
                run(x, y, batch_size=8, verbose=0)
        assert devices_of(model.weights) == {"CPU:0"}
    with IPUStrategy("/device:CPU:0").scope():
        if compiled_in_scope:
            compiled(model, keras.optimizers.SGD(0.02, 0.9))
        with raises(
            ValueError, "Model can only be used on an IPU device.\nReceived: a strategy on"
        ):
            model.predict(x, batch_size=8, verbose=0)
    with strategies[1].scope():
        if use != "predict":
            run = {"fit": model.fit, "evaluate": model.evaluate}[use]
            run(x, y, batch_size=8, verbose=0, **{"shuffle": False} if use == "fit" else {})
        outputs = model.predict(x, batch_size=8, verbose=0)
        results = model.evaluate(x, y, batch_size=8, verbose=0)
        assert devices_of(model.weights) == {"IPU:0"}
    if use == "fit":
        stock.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    assert_same(outputs, stock.predict(x, verbose=0))
    assert_same(results, stock.evaluate(x, y, batch_size=8, verbose=0))
    assert_same(model.get_weights(), stock.get_weights())


def test_models_made_outside_of_a_scope_share_what_they_shared(strategies, data):
    x, y = data
    inputs = keras.Input([6])
    hidden = keras.layers.Dense(5, "tanh")(inputs)
    models = [compiled(Model(inputs, keras.layers.Dense(3)(hidden))) for _ in range(2)]
    with strategies[1].scope():
        for model in (*models, models[0]):
            before = model.get_weights()
            model.fit(x, y, batch_size=8, verbose=0)
            assert not np.array_equal(model.get_weights()[0], before[0])
            for other in models:
                np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])


def test_evaluation_returns_a_list(strategies, data):
    x, y = data
    with strategies[1].scope():
        model = legacy_model()
        model.compile("sgd", LOSS, jit_compile=False)
        (loss,) = model.evaluate(x, y, batch_size=8, verbose=0)
        found = model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
        history = model.fit(x, y, batch_size=8, verbose=0, validation_data=data).history
    assert found == {"loss": pytest.approx(loss)}
    assert isinstance(loss, float)
    assert sorted(history) == ["loss", "val_loss"]


def test_a_strategy_without_extensions(strategies, data):
    with IPUStrategy(enable_keras_extensions=False).scope():
        model = compiled(legacy_model(gradient_accumulation_count=2))
        model.fit(*data, batch_size=8, verbose=0)
    assert int(model.optimizer.iterations) == 4


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"gradient_accumulation_count": 0},
            ValueError,
            "`gradient_accumulation_count` must be a positive integer, of the batches that each "
            "replica takes for a weight update. Received: gradient_accumulation_count=0",
        ),
        (
            {"gradient_accumulation_count": 2.0},
            ValueError,
            "`gradient_accumulation_count` must be a positive integer, ",
        ),
        (
            {"gradient_accumulation_count": -1},
            ValueError,
            "gradient_accumulation_count must be >= 0.\nIt is how many batches each replica takes ",
        ),
        (
            {"gradient_accumulation_dtype": "int32"},
            TypeError,
            "`gradient_accumulation_dtype` must be None, a floating point type such as ",
        ),
    ],
)
def test_options_that_cannot_be(strategies, options, error, message):
    with strategies[1].scope(), raises(error, message):
        legacy_model(**options)


def test_the_documented_names():
    from tensorflow.python.ipu import keras as documented

    assert documented.Model is Model
    assert documented.PipelineStage is PipelineStage
    names = {"Model", "PipelineModel", "PipelineSequential", "Sequential"}
    assert names <= set(vars(documented))
    # Those of the models that extensions are for do not change.
    assert not names & set(vars(documented.extensions))


def test_the_signature():
    assert str(inspect.signature(Model)) == (
        "(inputs, outputs, *, gradient_accumulation_count: int = 1, "
        "gradient_accumulation_dtype=None, name: str | None = None)"
    )


def test_options_of_other_models(strategies):
    with strategies[1].scope():
        model = legacy_model()
    for name in (
        "set_asynchronous_callbacks",
        "set_gradient_accumulation_options",
        "set_pipelining_options",
        "set_pipeline_stage_assignment",
        "reset_pipeline_stage_assignment",
    ):
        assert not hasattr(model, name)
    message = "Model has no `set_pipelining_options`, which models of `keras.ipu` have. Pass its "
    with raises(AttributeError, message):
        model.set_pipelining_options(4)


def test_compile_options(strategies):
    with strategies[1].scope():
        model = legacy_model()
        with raises(ValueError, "Model has no `steps_per_execution`: it runs all steps of an epoc"):
            compiled(model, steps_per_execution=2)
        assert not model.compiled
        compiled(model, steps_per_execution=1, run_eagerly=True)
        with raises(RuntimeError, "Keras models cannot run eagerly when using `IPUStrategy`. Set "):
            model.fit(np.zeros((4, 6), np.float32), np.zeros((4, 3), np.float32))


def test_prefetch_depth(strategies, data):
    with strategies[1].scope():
        model = compiled(legacy_model())
        model.set_infeed_queue_options(prefetch_depth=1)
        losses = model.fit(*data, batch_size=8, epochs=2, verbose=0).history["loss"]
    assert np.isfinite(losses).all()

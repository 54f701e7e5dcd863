import copy
import gc
import pickle
import weakref

import keras
import numpy as np
import pytest
from comparison import LOSS, assert_same, classifier, devices_of, fit_same
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.trainers.trainer import Trainer

from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras.extensions import FunctionalExtension, ModelExtension, SequentialExtension
from ipu_keras.keras.extensions.attachment import extended_class
from ipu_keras.keras.extensions.model_options import ModelOptions
from ipu_keras.keras.extensions.model_pipeline import ModelPipeline
from ipu_keras.keras.extensions.pipeline_stage import PipelineStage, stage_of
from ipu_keras.keras.extensions.saved_options import SavedOptions

# Stock Keras saves a variable with np.array(), whose `copy` argument TensorFlow's
# __array__ does not know yet; it warns on the CPU as well.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


class Plain(keras.Model):
    def __init__(self, units=3, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.dense = keras.layers.Dense(units)

    def call(self, inputs):
        return self.dense(inputs)


class FromTensors(keras.Model):
    def __init__(self, units=3):
        inputs = keras.Input([6])
        super().__init__(inputs, keras.layers.Dense(units)(inputs))
        self.units = units


class FromNamedTensors(keras.Model):
    def __init__(self):
        inputs = keras.Input([6])
        super().__init__(inputs=inputs, outputs=keras.layers.Dense(2)(inputs))


class MoreFromTensors(FromTensors):
    pass


class OwnSequential(keras.Sequential):
    pass


@keras.saving.register_keras_serializable("attachment")
class Registered(Plain):
    def get_config(self):
        return {**super().get_config(), "units": self.units}


def functional():
    inputs = keras.Input([6])
    return keras.Model(inputs, keras.layers.Dense(3)(inputs))


@pytest.mark.parametrize(
    ("make", "extension"),
    [
        (keras.Sequential, SequentialExtension),
        (OwnSequential, SequentialExtension),
        (functional, FunctionalExtension),
        (FromTensors, FunctionalExtension),
        (FromNamedTensors, FunctionalExtension),
        (MoreFromTensors, FunctionalExtension),
        (Plain, ModelExtension),
    ],
)
def test_a_model_gains_the_extension_that_fits(strategy, make, extension):
    with strategy.scope():
        models = [make(), make()]
    for model in models:
        assert isinstance(model, extension)
        assert type(model) is type(models[0])
    stock = make()
    assert not isinstance(stock, ModelExtension)
    assert isinstance(models[0], type(stock))
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        assert getattr(type(models[0]), attribute) == getattr(type(stock), attribute)
    extensions = {SequentialExtension, FunctionalExtension} - {extension}
    assert not isinstance(models[0], tuple(extensions))


def test_subclasses_that_become_functional_leave_the_extensions_alone(strategy, data):
    """Keras changes the bases of such a class up to `keras.Model`."""
    with strategy.scope():
        first, second = FromTensors(), FromTensors(units=2)
    assert ModelExtension.__mro__ == (
        ModelExtension, SavedOptions, ModelPipeline, ModelOptions,
        TensorFlowTrainer, Trainer, object
    )  # fmt: skip
    assert type(first) is type(second)
    assert first.units == 3
    assert first.predict(data[0], batch_size=8, verbose=0).shape == (64, 3)
    assert second.predict(data[0], batch_size=8, verbose=0).shape == (64, 2)
    assert not issubclass(extended_class(Plain), FunctionalExtension)


@pytest.mark.parametrize("extension", [ModelExtension, FunctionalExtension, SequentialExtension])
def test_an_extension_is_no_model(strategy, extension):
    message = f"^{extension.__name__} is no model by itself. Make a keras.Model in the scope"
    with strategy.scope(), pytest.raises(TypeError, match=message):
        extension([keras.layers.Dense(1)], name="model")


def test_an_extended_class_is_forgotten_with_its_class(strategy):
    class Local(keras.Model):
        pass

    with strategy.scope():
        Local()
    extended = weakref.ref(extended_class(Local))
    del Local
    gc.collect()
    assert extended() is None


def test_models_inside_a_model_are_extended_too(strategy):
    with strategy.scope():
        inner = keras.Sequential([keras.layers.Dense(2)], name="inner")
        inputs = keras.Input([6])
        outer = keras.Model(inputs, inner(inputs))
    assert isinstance(outer.get_layer("inner"), SequentialExtension)


def test_overridden_methods_get_their_arguments_unchanged(strategy, data):
    calls = []

    class Own(keras.Sequential):
        def compile(self, rate):
            calls.append(("compile", rate))
            super().compile(keras.optimizers.SGD(rate), "mse", jit_compile=False)

        def fit(self, pairs):
            calls.append(("fit", len(pairs)))
            return super().fit(*pairs, batch_size=8, verbose=0)

        def evaluate(self, *args, **kwargs):
            calls.append(("evaluate", len(args), kwargs))
            return super().evaluate(*args, **kwargs)

        def predict(self, values, scale):
            calls.append(("predict", scale))
            return scale * super().predict(values, batch_size=8, verbose=0)

        def predict_on_batch(self, values):
            calls.append(("predict_on_batch",))
            return super().predict_on_batch(values)

    x = data[0]
    with strategy.scope():
        model = Own([keras.Input([6]), keras.layers.Dense(1)])
    model.compile(0.1)
    model.fit((x, x[:, :1]))
    model.evaluate(x, x[:, :1], batch_size=8, verbose=0)
    np.testing.assert_allclose(model.predict(x, 2.0)[:8], 2 * model.predict_on_batch(x[:8]), 1e-6)
    assert calls == [
        ("compile", 0.1),
        ("fit", 2),
        ("evaluate", 2, {"batch_size": 8, "verbose": 0}),
        ("predict", 2.0),
        ("predict_on_batch",),
    ]


# Copies


def test_a_model_copied_outside_the_scope_is_a_stock_model(pair, data):
    stock, model = pair
    for copied in (
        keras.models.clone_model(model),
        type(model).from_config(model.get_config()),
        keras.models.model_from_json(model.to_json()),
    ):
        assert type(copied) is keras.Sequential
        assert devices_of(copied.variables) == {"CPU:0"}
    copied.compile("sgd", LOSS, metrics=["accuracy"], steps_per_execution=2)
    copied.set_weights(stock.get_weights())
    fit_same(copied, model, *data, batch_size=8)


@pytest.mark.parametrize("make", [Registered, functional, FromTensors])
def test_clone_model(strategy, make):
    sample = np.ones([1, 6], "float32")
    with strategy.scope():
        model = make()
        expected = model(sample)
        inside = keras.models.clone_model(model)
    outside = keras.models.clone_model(model)
    assert isinstance(inside, ModelExtension)
    assert not isinstance(outside, ModelExtension)
    for copied in (inside, outside):
        assert copied(sample).shape == expected.shape


def test_the_class_of_a_model_makes_models_for_where_it_is_called(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(2)])
        inside = type(model)([keras.layers.Dense(2), keras.layers.ReLU()], name="inside")
    outside = type(model)([keras.layers.Dense(2), keras.layers.ReLU()], name="outside")
    assert type(inside) is type(model)
    assert type(outside) is keras.Sequential
    assert [inside.name, outside.name] == ["inside", "outside"]
    assert len(inside.layers) == len(outside.layers) == 2


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["copy", "pickle"],
)
def test_pickles_and_copies(strategy, model, data, copied):
    outside = copied(model)
    with strategy.scope():
        inside = copied(model)
    assert type(outside) is keras.Sequential
    assert type(inside) is type(model)
    for other in (outside, inside):
        assert other.compiled
        assert_same(other.get_weights(), model.get_weights(), 0)


# Saving and loading


def test_a_saved_model_loads_inside_and_outside_the_scope(strategy, pair, data, tmp_path):
    _, model = pair
    model.compile("adam", LOSS, metrics=["accuracy"], steps_per_execution=2)
    model.fit(*data, batch_size=8, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    outside = keras.models.load_model(path)
    with strategy.scope():
        inside = keras.models.load_model(path)
    assert type(outside) is keras.Sequential
    assert type(inside) is type(model)
    for loaded in (inside, outside):
        assert loaded.compiled
        assert loaded.steps_per_execution == 2
        assert_same(
            [v.numpy() for v in loaded.optimizer.variables],
            [v.numpy() for v in model.optimizer.variables],
            0,
        )
    assert devices_of([*inside.variables, *inside.optimizer.variables]) == {"IPU:0"}
    assert_same(
        fit_same(outside, inside, *data, batch_size=8).history,
        model.fit(*data, batch_size=8, shuffle=False, verbose=0).history,
    )
    model.compile("sgd", LOSS, metrics=["accuracy"], steps_per_execution=2, jit_compile=False)


def test_a_loaded_model_chooses_its_execution_anew(strategy, tmp_path):
    """Stock Keras saves what "auto" was on the machine that saved it."""
    path = tmp_path / "model.keras"
    stock = classifier(jit_compile="auto")
    assert stock.jit_compile is False
    stock.build((None, 6))
    stock.save(path)
    with strategy.scope():
        loaded = keras.models.load_model(path)
    assert loaded._ipu.compiled is None


def test_weights_travel_between_stock_and_ipu_models(pair, tmp_path):
    # Not `model`, as what is loaded sets the count of the optimizer's steps back.
    _, model = pair
    stock = classifier()
    path = tmp_path / "model.weights.h5"
    stock.save_weights(path)
    before = model.get_weights()
    model.load_weights(path)
    assert_same(model.get_weights(), stock.get_weights(), 0)
    model.set_weights(before)
    model.save_weights(path)
    stock.load_weights(path)
    assert_same(stock.get_weights(), before, 0)


def test_a_registered_class_is_saved_as_itself(strategy, data, tmp_path):
    with strategy.scope():
        model = Registered(units=2)
        model.compile("sgd", "mse")
    expected = model.predict(data[0], batch_size=8, verbose=0)
    model.save(tmp_path / "model.keras")
    outside = keras.models.load_model(tmp_path / "model.keras")
    with strategy.scope():
        inside = keras.models.load_model(tmp_path / "model.keras")
    assert type(outside) is Registered
    assert type(inside) is type(model)
    assert outside.units == inside.units == 2
    assert_same(inside.predict(data[0], batch_size=8, verbose=0), expected)
    assert_same(outside.predict(data[0], batch_size=8, verbose=0), expected)


def test_a_loaded_model_with_its_own_compile_is_not_compiled(strategy, tmp_path):
    @keras.saving.register_keras_serializable("attachment")
    class OwnCompile(keras.Sequential):
        def compile(self, **kwargs):
            super().compile(**kwargs)

    with strategy.scope():
        model = OwnCompile([keras.Input([6]), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        model.optimizer.build(model.trainable_variables)
        model.save(tmp_path / "model.keras")
        with pytest.warns(UserWarning, match=r"the model's `compile\(\)` method is custom"):
            loaded = keras.models.load_model(tmp_path / "model.keras")
    assert not hasattr(loaded, "optimizer")


def test_stock_keras_loads_what_was_saved(model, data, run_python, tmp_path):
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    np.save(tmp_path / "x.npy", data[0])
    script = """
        import sys
        sys.modules["ipu_keras"] = None  # importing it fails
        import keras, numpy as np
        folder = sys.argv[1]
        model = keras.models.load_model(f"{folder}/model.keras")
        assert type(model) is keras.Sequential and model.compiled, type(model)
        outputs = model.predict(np.load(f"{folder}/x.npy"), verbose=0)
        model.set_weights([0 * weight for weight in model.get_weights()])
        model.load_weights(f"{folder}/model.weights.h5")
        assert np.array_equal(outputs, model.predict(np.load(f"{folder}/x.npy"), verbose=0))
        np.save(f"{folder}/outputs.npy", outputs)
        """
    result = run_python(script, tmp_path)
    assert result.returncode == 0, result.stderr
    expected = model.predict(data[0], batch_size=8, verbose=0)
    np.testing.assert_allclose(np.load(tmp_path / "outputs.npy"), expected, rtol=1e-5, atol=1e-6)


# Without extensions


def test_without_extensions_a_model_keeps_keras_loops_and_runs_on_the_device(data, device):
    strategy = IPUStrategy(enable_keras_extensions=False)
    keras.utils.set_random_seed(1)
    stock = classifier(steps_per_execution=4)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = classifier(steps_per_execution=4)
    assert type(model) is keras.Sequential
    assert devices_of(model.variables) == {"IPU:0"}
    device.reset_counters()
    fit_same(stock, model, *data, batch_size=8, epochs=2)
    assert device.counters().num_function_calls == 4
    with strategy.scope():
        assert type(keras.models.clone_model(model)) is keras.Sequential
        model.fit(*data, batch_size=8, shuffle=False, verbose=0)
    stock.fit(*data, batch_size=8, shuffle=False, verbose=0)
    assert_same(
        model.evaluate(*data, batch_size=8, verbose=0),
        stock.evaluate(*data, batch_size=8, verbose=0),
    )
    assert_same(
        model.predict(data[0], batch_size=8, verbose=0),
        stock.predict(data[0], batch_size=8, verbose=0),
    )


def sequential():
    return keras.Sequential([keras.layers.Dense(3)])


@pytest.mark.parametrize("make", [sequential, functional, FromTensors, Plain])
def test_a_model_has_one_attribute_of_this_package(strategy, data, make):
    """Users' models have many names of their own."""
    with strategy.scope(), PipelineStage(1):
        model = make()
    assert stage_of(model) == 1
    model.reset_pipeline_stage_assignment()
    model.compile("sgd", LOSS)
    model.predict(data[0], batch_size=8, verbose=0)
    found = {name for name in dir(model) if "ipu" in name and not name.startswith("set_")}
    assert found == {"_ipu"}

import copy
import json
import pickle
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.keras.extensions import PipelineStage
from ipu_keras.keras.extensions.accumulation_options import AccumulationOptions
from ipu_keras.keras.extensions.option_checks import ExtensionOptions
from ipu_keras.keras.extensions.pipelining_options import PipeliningOptions
from ipu_keras.keras.extensions.saved_options import attach_cloning
from ipu_keras.pipelining_ops import PipelineSchedule
from ipu_keras.settings.gradient_accumulation import (
    GradientAccumulationReductionMethod as Reduction,
)

# Stock Keras saves a variable with np.array(), whose `copy` argument TensorFlow's
# __array__ does not know yet; it warns on the CPU as well.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def dense(name):
    return keras.layers.Dense(2, name=name)


def sequential():
    with PipelineStage(0):
        first = dense("a")
    with PipelineStage(1):
        return keras.Sequential([keras.Input([2]), first, dense("b")])


def functional():
    """With an operation in a stage of its own choice, and a nested model."""
    inside = keras.Input([2])
    nested = keras.Model(inside, dense("c")(inside), name="nested")
    inputs, a = keras.Input([2]), dense("a")
    with PipelineStage(0):
        x = a(inputs)
    with PipelineStage(1):
        return keras.Model(inputs, keras.ops.relu(x) + a(nested(x)))


@keras.saving.register_keras_serializable("saved_options")
class Subclass(keras.Model):
    def __init__(self, **options):
        super().__init__(**options)
        self.a, self.b = dense("a"), dense("b")

    def call(self, inputs):
        return self.b(self.a(inputs))


def subclass():
    model = Subclass()
    model(np.zeros((4, 2), np.float32))
    model.set_pipeline_stage_assignment([0, 1])
    return model


@pytest.fixture(params=[sequential, functional, subclass])
def model(strategy, request):
    with strategy.scope():
        model = request.param()
        model.compile("sgd", "mse", steps_per_execution=4)
    model.set_gradient_accumulation_options(4, "mean", dtype="float16")
    model.set_pipelining_options(
        8, [0, 0], True, "running_mean", pipeline_schedule=PipelineSchedule.Sequential
    )
    model.set_asynchronous_callbacks(True)
    model.set_infeed_queue_options(prefetch_depth=5, feed_name="mine")
    return model


def check_kept(model, original):
    """What is documented, and nothing else."""
    options = model._ipu.options
    assert options.accumulation == AccumulationOptions(
        steps_per_replica=4, reduction=Reduction.MEAN
    )
    assert options.pipelining == PipeliningOptions(
        steps_per_replica=8,
        reduction=Reduction.RUNNING_MEAN,
        device_mapping=(0, 0),
        accumulate_outfeed=True,
    )
    assert (options.prefetch_depth, options.infeed_name) == (5, "mine")
    assert options.asynchronous_callbacks is True
    assert described(model) == described(original)
    assert model._ipu.stages.staged_calls().stages == original._ipu.stages.staged_calls().stages


def described(model):
    return [
        (entry.layer.name, entry.pipeline_stage) for entry in model.get_pipeline_stage_assignment()
    ]


def test_a_saved_model(strategy, model, tmp_path):
    model.save(tmp_path / "model.keras")
    with strategy.scope():
        loaded = keras.models.load_model(tmp_path / "model.keras")
    check_kept(loaded, model)
    assert loaded._ipu.stages.pipeline(True, 8).device_mapping == (0, 0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies(strategy, model, copied):
    with strategy.scope():
        check_kept(copied(model), model)


@pytest.mark.parametrize(
    "clone_model",
    [
        lambda model: keras.models.clone_model(model),
        lambda model: tf.keras.models.clone_model(model),
    ],
)
def test_clones(strategy, model, clone_model):
    with strategy.scope():
        clone = clone_model(model)
        clone(np.zeros((4, 2), np.float32))
    check_kept(clone, model)
    assert clone.layers[-1] is not model.layers[-1]


def test_a_clone_outside_of_a_scope_is_a_stock_model(model):
    clone = keras.models.clone_model(model)
    assert not hasattr(clone, "_ipu")


def test_clones_of_stock_models_have_no_options(strategy):
    with strategy.scope():
        clone = keras.models.clone_model(stock := keras.Sequential([dense("a")]))
    assert clone._ipu.options == ExtensionOptions()
    assert stock is not clone


def test_a_reset_is_kept(strategy, model, tmp_path):
    model.reset_pipeline_stage_assignment()
    model.save(tmp_path / "model.keras")
    with strategy.scope():
        loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded._ipu.options.stages == ()
    assert loaded._ipu.stages.pipeline(False, 4) is None


def test_a_model_without_options_is_saved_as_in_stock_keras(strategy, tmp_path):
    with strategy.scope():
        model = keras.Sequential([keras.Input([2]), dense("a")])
    model.save(tmp_path / "model.keras")
    names = zipfile.ZipFile(tmp_path / "model.keras").namelist()
    assert not any("ipu" in name for name in names)


def test_a_nested_model_keeps_its_own(strategy, tmp_path):
    with strategy.scope():
        inner = keras.Sequential([keras.Input([2]), dense("a")], name="inner")
        inner.set_gradient_accumulation_options(3)
        inputs = keras.Input([2])
        keras.Model(inputs, inner(inputs)).save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded._ipu.options == ExtensionOptions()
    assert loaded.get_layer("inner")._ipu.options.accumulation.steps_per_replica == 3


def test_a_later_version(strategy, tmp_path):
    with strategy.scope():
        model = keras.Sequential([keras.Input([2]), dense("a")])
    (tmp_path / "ipu_options.json").write_text(json.dumps({"version": 2}))
    with pytest.raises(
        ValueError, match=r"^The model was saved with IPU options of version 2, but"
    ):
        model.load_assets(tmp_path)
    assert model._ipu.options == ExtensionOptions()


def test_what_was_compiled_before_is_dropped(model, tmp_path):
    model.save_assets(tmp_path)
    model.train_function = print
    model.load_assets(tmp_path)
    assert model.train_function is None
    model.load_assets(None)
    model.load_assets(tmp_path / "elsewhere")
    check_kept(model, model)


def test_attaching_twice_changes_nothing():
    before = keras.models.clone_model
    attach_cloning()
    assert keras.models.clone_model is before


STOCK = """
    import sys, keras, numpy as np
    for folder in sys.argv[1:]:
        model = keras.models.load_model(f"{folder}/model.keras")
        outputs = model.predict(np.ones((4, 2), np.float32), verbose=0)
        np.save(f"{folder}/outputs.npy", outputs)
        model.fit(np.ones((4, 2), np.float32), outputs, verbose=0)
        model.save(f"{folder}/again.keras")
    assert not any(name.startswith("ipu_keras") for name in sys.modules)
"""


def test_stock_keras_loads_the_file(strategy, tmp_path, run_python):
    """And what it saves again we load, without options."""
    models = {}
    for build in (sequential, functional):
        with strategy.scope():
            model = build()
            model.compile("sgd", "mse")
        model.set_gradient_accumulation_options(4)
        folder = tmp_path / build.__name__
        folder.mkdir()
        models[folder] = model
        model.save(folder / "model.keras")
        assert any(
            "ipu_options" in name for name in zipfile.ZipFile(folder / "model.keras").namelist()
        )
    done = run_python(STOCK, *models)
    assert done.returncode == 0, done.stderr
    for folder, model in models.items():
        expected = model(np.ones((4, 2), np.float32))
        np.testing.assert_allclose(np.load(folder / "outputs.npy"), expected, rtol=1e-6)
        with strategy.scope():
            again = keras.models.load_model(folder / "again.keras")
        assert again._ipu.options == ExtensionOptions()

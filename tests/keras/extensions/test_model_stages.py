import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from staged_models import (
    KINDS,
    Subclass,
    X,
    assign,
    dense,
    raises,
    sequential,
    stages,
)

from ipu_keras.keras.extensions import (
    PipelineStage,
)
from ipu_keras.pipelining_ops import PipelineSchedule, PipelineStageOptions, RecomputationMode
from ipu_keras.program import Pipeline


@pytest.fixture(params=KINDS)
def model(strategy, request):
    with strategy.scope():
        return request.param()


# Subclasses


@pytest.mark.parametrize("what", ["get", "set"])
def test_a_subclass_that_is_not_built(strategy, what):
    with strategy.scope():
        model = Subclass(name="mine")
    message = (
        f"Cannot {what} pipeline stage assignments for model `mine` which has not been built yet. "
        "Please call the model on data"
    )
    arguments = [[0, 1, 1]] if what == "set" else []
    with raises(RuntimeError, message):
        getattr(model, f"{what}_pipeline_stage_assignment")(*arguments)
    if what == "get":
        with raises(RuntimeError, message):
            model.print_pipeline_stage_assignment_summary()
    assert model._ipu.stages.pipeline(False, 4) is None


class Building(Subclass):
    def build(self, shape):
        self.a.build(shape)
        self.b.build(shape)


def test_a_subclass_that_was_built_for_a_shape(strategy):
    with strategy.scope():
        model = Building()
    model.build((4, 2))
    model.set_pipeline_stage_assignment([0, 1, 1])
    assert [entry.node_index for entry in model.get_pipeline_stage_assignment()] == [0, 0, 1]


class BuildingFor(keras.Model):
    """Built for two shapes, by the names that Keras gives them."""

    def __init__(self):
        super().__init__()
        self.a, self.b = dense("a"), dense("b")

    def build(self, one_shape, other_shape):
        self.a.build(one_shape)
        self.b.build(other_shape)

    def call(self, one, other):
        return self.a(one) + self.b(other)


class Pair(Subclass):
    def call(self, inputs):
        one, other = inputs["one"], inputs["other"]
        return self.a(one) + self.b(other)


NOT_BUILT_BY_KERAS = pytest.mark.filterwarnings("ignore:.build... was called on layer:UserWarning")


@NOT_BUILT_BY_KERAS
@pytest.mark.parametrize(
    ("kind", "shapes", "layers"),
    [
        (Subclass, [(4, 2)], "aba"),
        (Subclass, [(None, 2)], "aba"),
        (Subclass, [[4, 2]], "aba"),
        (Subclass, [tf.TensorShape((4, 2))], "aba"),
        (Building, [(4, 2)], "aba"),
        (Pair, [{"one": (4, 2), "other": (4, 3)}], "ab"),
        (BuildingFor, [(4, 2), (4, 3)], "ab"),
    ],
)
def test_a_subclass_that_keras_takes_for_built(strategy, kind, shapes, layers):
    for first in ("get", "set"):
        with strategy.scope():
            model = kind()
            model.build(*shapes)
        if first == "set":
            model.set_pipeline_stage_assignment([0, *[1] * (len(layers) - 1)])
        assignment = model.get_pipeline_stage_assignment()
        assert [entry.layer.name for entry in assignment] == list(layers)
        assert all(weight.value.device.endswith("IPU:0") for weight in model.weights)
        assert len(model.weights) == 4
        if first == "get":
            assert stages(model) == [None] * len(layers)
            assign(model, [0, *[1] * (len(layers) - 1)])
        assert stages(model) == [0, *[1] * (len(layers) - 1)]


class OfIntegers(Subclass):
    """Takes integers only, which a shape does not say."""

    def call(self, inputs):
        return super().call(tf.cast(tf.bitwise.invert(inputs), tf.float32))


@NOT_BUILT_BY_KERAS
def test_a_subclass_that_cannot_be_called_on_what_it_was_built_for(strategy):
    with strategy.scope():
        model = OfIntegers(name="mine")
    model.build((4, 2))
    message = "Cannot get pipeline stage assignments for model `mine` which has not been built yet"
    for _ in range(2):
        with raises(RuntimeError, message) as raised:
            model.get_pipeline_stage_assignment()
        assert isinstance(raised.value.__cause__, Exception)
    with strategy.scope():
        model(X.astype("int32"))
    assert len(model.get_pipeline_stage_assignment()) == 3


class TwoInputs(keras.Model):
    def __init__(self):
        super().__init__()
        self.table, self.a = keras.layers.Embedding(5, 2, name="table"), dense("a")

    def call(self, inputs, scale=None, training=False):
        rows = self.table(tf.bitcast(inputs["rows"], tf.int32))  # integers only
        return self.a(rows * scale + inputs["values"])


def test_a_subclass_with_several_inputs_and_arguments(strategy):
    with strategy.scope():
        model = TwoInputs()
        inputs = {"rows": np.zeros((4,), np.int32), "values": X}
        model(inputs, scale=tf.constant(2.0), training=True)
    layers = [entry.layer.name for entry in model.get_pipeline_stage_assignment()]
    assert layers == ["table", "a"]


class Scoped(Subclass):
    num_calls = 0

    def call(self, inputs):
        self.num_calls += 1
        with PipelineStage(0):
            x = self.a(inputs)
        with PipelineStage(1):
            return self.b(x)


class Labelled(keras.Model):
    def call(self, inputs, label=None):
        return inputs * label.factor


def test_a_model_can_still_be_called_with_anything(strategy):
    label = types.SimpleNamespace(shape=None, dtype="of no tensor", factor=2.0)
    with strategy.scope():
        np.testing.assert_array_equal(Labelled()(X + 1, label=label), X + 2)


def test_scopes_in_the_call_of_a_subclass(strategy):
    with strategy.scope():
        model = Scoped()
        model(X)
    assert stages(model) == [0, 1]
    assert model._ipu.stages.pipeline(False, 2) == Pipeline(device_mapping=(0, 1))


def test_a_scope_in_a_call_that_nothing_has_seen_yet(strategy):
    with strategy.scope():
        model = ScopedAndBuilt()
        model.build((4, 2))
        assert model._ipu.stages.pipeline(False, 2) == Pipeline(device_mapping=(0, 1))


class ScopedAndBuilt(Scoped):
    def build(self, shape):
        self.a.build(shape)
        self.b.build(shape)


class Counting(Subclass):
    num_calls = 0

    def call(self, inputs):
        self.num_calls += 1
        return super().call(inputs)


def test_a_subclass_without_stages_is_not_traced_to_find_out(strategy):
    with strategy.scope():
        model = Counting()
        model(X)
        before = model.num_calls
        assert model._ipu.stages.pipeline(False, 4) is None
        assert model.num_calls == before


def test_a_subclass_whose_layers_were_made_in_scopes(strategy):
    with strategy.scope():
        with PipelineStage(0):
            model = Subclass()
        model(X)
    assert stages(model) == [0, 0, 0]


# The pipeline


def test_the_pipeline(staged):
    expected = Pipeline(device_mapping=(0, 0))
    assert staged._ipu.stages.pipeline(True, 8, "train") == expected
    assert staged._ipu.stages.pipeline(False, 8, "test") == expected


def test_all_options_reach_the_pipeline(strategy):
    with strategy.scope():
        model = sequential()
    model.set_pipeline_stage_assignment([0, 1, 1])
    options = PipelineStageOptions(matmul_options={"availableMemoryProportion": "0.1"})
    names = {
        "offload_weight_update_variables": True,
        "replicated_optimizer_state_sharding": True,
        "offload_activations": True,
        "offload_gradient_accumulation_buffers": False,
        "replicated_weight_sharding": True,
        "offload_weights": False,
    }
    mode = RecomputationMode.RecomputeAndBackpropagateInterleaved
    model.set_pipelining_options(
        3,
        device_mapping=[2, 2],
        pipeline_schedule=PipelineSchedule.Sequential,
        recomputation_mode=mode,
        forward_propagation_stages_poplar_options=[options] * 2,
        backward_propagation_stages_poplar_options=[options] * 2,
        weight_update_poplar_options=options,
        **names,
    )
    assert model._ipu.stages.pipeline(True, 3) == Pipeline(
        device_mapping=(2, 2),
        schedule=PipelineSchedule.Sequential,
        recomputation_mode=mode,
        forward_options=(options, options),
        backward_options=(options, options),
        weight_update_options=options,
        **names,
    )


def test_training_without_a_count(staged):
    staged.set_pipelining_options(device_mapping=[0, 0])
    message = (
        "The model which you are attempting to train is pipelined, however "
        "`gradient_accumulation_steps_per_replica` has not been set through "
    )
    with raises(ValueError, message):
        staged._ipu.stages.pipeline(True, 4)
    assert staged._ipu.stages.pipeline(False, 4) is not None


def test_a_depth_that_is_no_multiple(staged):
    staged.set_pipelining_options(6, device_mapping=[0, 0])
    message = "The number of iterations of the pipeline must be a multiple of {}, but it is {}."
    with raises(tf.errors.FailedPreconditionError, message.format(4, 6)):
        staged._ipu.stages.pipeline(True, 12)
    with raises(tf.errors.FailedPreconditionError, message.format(2, 5)):
        staged._ipu.stages.pipeline(False, 5)
    assert staged._ipu.stages.pipeline(False, 6) is not None


def test_a_mapping_of_another_length(staged):
    staged.set_pipelining_options(4, device_mapping=[0, 1, 2])
    with raises(ValueError, "Each stage must be mapped to an IPU: 3 mappings != 2 stages\nGive"):
        staged._ipu.stages.pipeline(True, 4)


def test_a_mapping_without_stages(strategy, model):
    model.compile("sgd", "mse", steps_per_execution=2)
    model.set_pipelining_options(2, device_mapping=[0, 1])
    message = (
        "All layers of a pipelined model must have an associated pipeline stage. However, "
        "a has not been assigned to one. Pipeline stages can be assigned when a layer is "
    )
    for run in (model.predict, model.evaluate, model.fit):
        with raises(ValueError, message):
            run(*[X] * (1 + (run != model.predict)), batch_size=1, verbose=0)
    model.reset_pipeline_stage_assignment()
    assert model.predict(X, batch_size=1, verbose=0).shape[0] == len(X)


def test_poplar_options_of_another_length(staged):
    staged.set_pipelining_options(
        4, [0, 0], forward_propagation_stages_poplar_options=[PipelineStageOptions()]
    )
    with raises(ValueError, "`forward_options` must have an entry for each of the 2 stages. Rece"):
        staged._ipu.stages.pipeline(True, 4)


def test_shared_weights(staged):
    staged.set_pipelining_options(4)
    message = (
        r"^The weight .*a/kernel is used in pipeline stages 0 and 1, which are on the IPUs 0 and "
        "1, but an input can only be used by pipeline stages on the same IPU"
    )
    with pytest.raises(tf.errors.UnimplementedError, match=message):
        staged._ipu.stages.pipeline(False, 4)


def test_interleaved_stages_on_one_ipu(staged):
    staged.set_pipelining_options(4, [0, 0], pipeline_schedule=PipelineSchedule.Interleaved)
    with raises(NotImplementedError, "The pipelining schedule 'Interleaved' does not currently su"):
        staged._ipu.stages.pipeline(True, 4)
    assert staged._ipu.stages.pipeline(False, 4) is not None


def test_one_stage_is_no_pipeline(model):
    assign(model, [0, 0, 0])
    with raises(ValueError, "Pipeline requires at least two computational stages.\nReceived: 1"):
        model._ipu.stages.pipeline(False, 4)


def test_scopes_that_leave_a_layer_out(strategy):
    with strategy.scope():
        inputs = keras.Input([2])
        with PipelineStage(0):
            x = dense("a")(inputs)
        model = keras.Model(inputs, dense("b")(x))
    message = "All layers of a pipelined model must have an associated pipeline stage. However, b"
    with raises(ValueError, message):
        model._ipu.stages.pipeline(False, 4)
    assert stages(model) == [0, None]


def test_a_stage_of_an_operation_only(strategy):
    with strategy.scope():
        inputs = keras.Input([2])
        with PipelineStage(0):
            x = dense("a")(inputs)
        with PipelineStage(1):
            x = keras.ops.relu(x)
        with PipelineStage(2):
            model = keras.Model(inputs, dense("b")(x))
    with pytest.raises(RuntimeError, match="no layer in the stages \\[1\\]"):
        model._ipu.stages.pipeline(False, 4)


class OwnCall(keras.Sequential):
    def call(self, inputs):
        return super().call(inputs)


class OwnSteps(keras.Sequential):
    def train_step(self, data):
        return super().train_step(data)

    def predict_step(self, data):
        return super().predict_step(data)


def test_overridden_functions(strategy):
    with strategy.scope():
        models = OwnCall(name="call"), OwnSteps(name="steps")
        for model in models:
            for name in "ab":
                model.add(dense(name))
            model.set_pipeline_stage_assignment([0, 1])
            model.set_pipelining_options(4)
    message = "The function `{}` for the model {} has been overridden. This is not supported for pi"
    with raises(RuntimeError, message.format("call", "call")):
        models[0]._ipu.stages.pipeline(False, 4)
    for name in ("train", "predict"):
        with raises(RuntimeError, message.format(f"{name}_step", "steps")):
            models[1]._ipu.stages.pipeline(name == "train", 4, name)
    assert models[1]._ipu.stages.pipeline(False, 4, "test") is not None


def test_what_training_asks_of_a_model(strategy):
    with strategy.scope():
        model, pipelined = OwnSteps([dense("a"), dense("b")]), sequential()
    for one in (model, pipelined):
        one.compile("sgd", "mse")
    model._ipu.stages.check_training(5)
    model.set_gradient_accumulation_options(1)
    model._ipu.stages.check_training(5)
    model.set_gradient_accumulation_options(2)
    message = "The function `train_step` for the model {} has been overridden. This is not"
    with raises(RuntimeError, message.format(model.name)):
        model._ipu.stages.check_training(4)
    pipelined.set_gradient_accumulation_options(2)
    with raises(RuntimeError, "The model has been configured to use gradient accumulation for tra"):
        pipelined._ipu.stages.check_training(5)
    pipelined.set_pipeline_stage_assignment([0, 1, 1])
    pipelined.set_pipelining_options(4)
    with raises(RuntimeError, "The pipelined model has been configured to use gradient accumulat"):
        pipelined._ipu.stages.check_training(6)
    pipelined._ipu.stages.check_training(8)


class OwnMinimize(keras.optimizers.SGD):
    def minimize(self, *args):
        """Does not minimise."""


def test_a_model_compiled_after_its_options_were_set(strategy):
    with strategy.scope():
        model = sequential()
    model.set_gradient_accumulation_options(2)
    model.compile(OwnMinimize(), "mse")
    with raises(
        ValueError, "When using Gradient Accumulation or Pipelining, the provided optimizer"
    ):
        model._ipu.stages.check_training(4)

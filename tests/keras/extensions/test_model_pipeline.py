import re
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.keras.extensions import (
    FunctionalLayerPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    PipelineStage,
    SequentialLayerPipelineStageAssignment,
)
from ipu_keras.pipelining_ops import PipelineSchedule, PipelineStageOptions, RecomputationMode
from ipu_keras.program import Pipeline

X = np.zeros((4, 2), np.float32)


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


def dense(name):
    return keras.layers.Dense(2, name=name)


class Subclass(keras.Model):
    """`a`, `b` and `a` again."""

    def __init__(self, **options):
        super().__init__(**options)
        self.a, self.b = dense("a"), dense("b")

    def call(self, inputs):
        return self.a(tf.nn.relu(self.b(self.a(inputs))))


def made_subclass():
    model = Subclass()
    model(X)
    return model


def functional():
    inputs, a = keras.Input([2]), dense("a")
    return keras.Model(inputs, a(dense("b")(a(inputs))))


def sequential():
    a = dense("a")
    return keras.Sequential([keras.Input([2]), a, dense("b"), a])


KINDS = [sequential, functional, made_subclass]


@pytest.fixture(params=KINDS)
def model(strategy, request):
    with strategy.scope():
        return request.param()


@pytest.fixture
def staged(model):
    """A model with the stages 0, 1, 1 on one IPU."""
    assign(model, [0, 1, 1])
    model.set_pipelining_options(4, device_mapping=[0, 0])
    return model


def assign(model, stages):
    assignment = model.get_pipeline_stage_assignment()
    for entry, stage in zip(assignment, stages, strict=True):
        entry.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignment)


def stages(model):
    return [entry.pipeline_stage for entry in model.get_pipeline_stage_assignment()]


# Assignments


def test_no_layer_has_a_stage_at_first(model):
    assignment = model.get_pipeline_stage_assignment()
    assert [(entry.layer.name, entry.pipeline_stage) for entry in assignment] == [
        ("a", None),
        ("b", None),
        ("a", None),
    ]
    assert model._ipu_pipeline(True, 4) is None
    assert model._ipu_pipeline(False, 4) is None


def test_stages_that_are_set(model):
    assign(model, [0, 1, 1])
    first, second = (model.get_pipeline_stage_assignment() for _ in range(2))
    assert [entry.pipeline_stage for entry in first] == [0, 1, 1]
    first[0].pipeline_stage = 7
    assert second[0].pipeline_stage == 0
    assert stages(model) == [0, 1, 1]


@pytest.mark.parametrize("build", [sequential, made_subclass])
def test_integers(strategy, build):
    with strategy.scope():
        model = build()
    model.set_pipeline_stage_assignment([0, 0, 1])
    assert stages(model) == [0, 0, 1]
    with raises(ValueError, "-1 is not a valid pipeline stage. Stages are integers"):
        model.set_pipeline_stage_assignment([0, -1, 1])
    assert stages(model) == [0, 0, 1]


def test_a_functional_model_takes_no_integers(strategy):
    with strategy.scope():
        model = functional()
    message = (
        "All elements of `pipeline_stage_assignment` need to be instances of "
        "FunctionalLayerPipelineStageAssignment. Received: 0 at index 0"
    )
    with raises(ValueError, message):
        model.set_pipeline_stage_assignment([0, 0, 1])


@pytest.mark.parametrize("assignment", [(0, 1, 1), None, "011", 3])
def test_what_is_no_list(model, assignment):
    message = "`pipeline_stage_assignment` needs to be a list. Received: "
    with raises(ValueError, f"{message}{type(assignment).__name__}"):
        model.set_pipeline_stage_assignment(assignment)


@pytest.mark.parametrize("length", [0, 2, 4])
def test_a_list_of_another_length(model, length):
    message = (
        f"The length of the provided `pipeline_stage_assignment` ({length}) does not match the "
        "number of layers in the graph (3)."
    )
    with raises(ValueError, message):
        model.set_pipeline_stage_assignment([0] * length)


def test_another_order(model):
    assignment = model.get_pipeline_stage_assignment()
    for entry, stage in zip(assignment, (1, 0, 1), strict=True):
        entry.pipeline_stage = stage
    message = "`pipeline_stage_assignment` needs to have the order of `get_pipeline_stage_assignm"
    with raises(ValueError, message):
        model.set_pipeline_stage_assignment([assignment[i] for i in (1, 0, 2)])
    assert stages(model) == [None] * 3


def test_calls_of_a_layer_in_another_order(strategy):
    with strategy.scope():
        models = functional(), made_subclass()
    for model in models:
        first, middle, last = model.get_pipeline_stage_assignment()
        message = "`pipeline_stage_assignment` needs to have the order of"
        with pytest.raises(ValueError, match=rf"^{message}.* call 1,.* where call 0 of a is exp"):
            model.set_pipeline_stage_assignment([last, middle, first])


def test_mixed_entries(strategy):
    with strategy.scope():
        model = sequential()
    layers = model.layers
    message = (
        "All elements of `pipeline_stage_assignment` need to be integers or all instances of "
        "SequentialLayerPipelineStageAssignment. Received: "
    )
    entry = SequentialLayerPipelineStageAssignment(layers[0], 0)
    with raises(ValueError, f"{message}1 at index 1"):
        model.set_pipeline_stage_assignment([entry, 1, 1])
    other = ModelLayerPipelineStageAssignment(layers[1], 0, 1)
    with raises(ValueError, f"{message}{other!r} at index 1"):
        model.set_pipeline_stage_assignment([entry, other, entry])


def test_assignments_that_users_make(strategy):
    with strategy.scope():
        model = functional()
    entries = [
        FunctionalLayerPipelineStageAssignment(entry.layer, entry.node_index, stage)
        for entry, stage in zip(model.get_pipeline_stage_assignment(), (0, 1, 2), strict=True)
    ]
    model.set_pipeline_stage_assignment(entries)
    assert stages(model) == [0, 1, 2]


@pytest.mark.parametrize(
    ("assigned", "of_graph", "of_sequence"),
    [
        ([0, None, 1], "However, b has not been assigned", "However, b has not been assigned"),
        ([0, 1, 0], "Layer a in pipeline stage 0 has a dependency", "Layer a has been assigned to"),
        ([0, 2, 2], "All stages in a pipeline must have", "Layer b has been assigned to pipeline"),
        ([1, 1, 1], "All stages in a pipeline must have", "The first layer in a pipelined sequ"),
    ],
)
def test_stages_that_cannot_be(model, assigned, of_graph, of_sequence):
    message = of_sequence if isinstance(model, keras.Sequential) else of_graph
    with pytest.raises((ValueError, RuntimeError), match=message):
        assign(model, assigned)
    assert stages(model) == [None] * 3


def test_what_was_compiled_for_other_stages_is_dropped(model):
    model.train_function = print
    assign(model, [0, 1, 1])
    assert model.train_function is None
    model.predict_function = print
    model.reset_pipeline_stage_assignment()
    assert model.predict_function is None


def test_a_reset(staged):
    staged.reset_pipeline_stage_assignment()
    assert stages(staged) == [None] * 3
    assert staged._ipu_pipeline(True, 4) is None


def test_a_reset_of_what_scopes_have_assigned(strategy):
    with strategy.scope():
        with PipelineStage(0):
            layer = dense("a")
        model = keras.Sequential([keras.Input([2]), layer])
    assert stages(model) == [0]
    model.reset_pipeline_stage_assignment()
    assert stages(model) == [None]
    assign(model, [0])
    assert stages(model) == [0]


def test_what_is_set_goes_before_the_scopes(strategy):
    with strategy.scope():
        inputs = keras.Input([2])
        with PipelineStage(1):
            x = dense("a")(inputs)
            model = keras.Model(inputs, dense("b")(x))
    assign(model, [0, 1])
    assert stages(model) == [0, 1]


def test_layers_added_later(strategy):
    with strategy.scope():
        model = sequential()
    model.set_pipeline_stage_assignment([0, 1, 1])
    model.add(dense("more"))
    with raises(ValueError, "The length of the provided `pipeline_stage_assignment` (3) does not"):
        model._ipu_pipeline(False, 4)


def test_a_sequential_model_before_it_is_built(strategy):
    with strategy.scope():
        model = keras.Sequential([dense("a"), dense("b")])
    model.set_pipeline_stage_assignment([0, 1])
    assert model._ipu_pipeline(False, 2).num_stages == 2


def test_inbound_layers(strategy):
    with strategy.scope():
        models = functional(), made_subclass()
    names = [
        [[layer.name for layer in entry.inbound_layers] for entry in assignment]
        for assignment in (model.get_pipeline_stage_assignment() for model in models)
    ]
    inputs = models[0].inputs[0]._keras_history[0].name
    assert names == [[[inputs], ["a"], ["b"]], [[], ["a"], ["b"]]]


def test_a_summary(staged):
    lines = []
    staged.print_pipeline_stage_assignment_summary(line_length=70, print_fn=lines.append)
    assert lines[0] == f'Model: "{staged.name}"'
    rows = [line.split() for line in lines[4:-1]]
    assert [(row[0], row[-1]) for row in rows] == [("a", "0"), ("b", "1"), ("a", "1")]
    assert max(map(len, lines)) == 70


def test_a_summary_on_the_screen(staged, capsys):
    staged.print_pipeline_stage_assignment_summary()
    assert capsys.readouterr().out.splitlines()[1] == "_" * 98


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
    assert model._ipu_pipeline(False, 4) is None


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
    assert model._ipu_pipeline(False, 2) == Pipeline(device_mapping=(0, 1))


def test_a_scope_in_a_call_that_nothing_has_seen_yet(strategy):
    with strategy.scope():
        model = ScopedAndBuilt()
        model.build((4, 2))
        assert model._ipu_pipeline(False, 2) == Pipeline(device_mapping=(0, 1))


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
        assert model._ipu_pipeline(False, 4) is None
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
    assert staged._ipu_pipeline(True, 8, "train") == expected
    assert staged._ipu_pipeline(False, 8, "test") == expected


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
    assert model._ipu_pipeline(True, 3) == Pipeline(
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
        "`gradient_accumulation_steps_per_replica` has not been set. Set it with "
        "`set_pipelining_options`"
    )
    with raises(ValueError, message):
        staged._ipu_pipeline(True, 4)
    assert staged._ipu_pipeline(False, 4) is not None


def test_a_depth_that_is_no_multiple(staged):
    staged.set_pipelining_options(6, device_mapping=[0, 0])
    message = "The number of iterations of the pipeline must be a multiple of {}, but it is {}."
    with raises(tf.errors.FailedPreconditionError, message.format(4, 6)):
        staged._ipu_pipeline(True, 12)
    with raises(tf.errors.FailedPreconditionError, message.format(2, 5)):
        staged._ipu_pipeline(False, 5)
    assert staged._ipu_pipeline(False, 6) is not None


def test_a_mapping_of_another_length(staged):
    staged.set_pipelining_options(4, device_mapping=[0, 1, 2])
    with raises(ValueError, "Each stage must be mapped to an IPU: 3 mappings != 2 stages. Give"):
        staged._ipu_pipeline(True, 4)


def test_poplar_options_of_another_length(staged):
    staged.set_pipelining_options(
        4, [0, 0], forward_propagation_stages_poplar_options=[PipelineStageOptions()]
    )
    with raises(ValueError, "`forward_options` must have an entry for each of the 2 stages. Rece"):
        staged._ipu_pipeline(True, 4)


def test_shared_weights(staged):
    staged.set_pipelining_options(4)
    message = (
        r"^The weight .*a/kernel is used in pipeline stages 0 and 1, which are on the IPUs 0 and "
        "1, but an input can only be used by pipeline stages on the same IPU"
    )
    with pytest.raises(tf.errors.UnimplementedError, match=message):
        staged._ipu_pipeline(False, 4)


def test_interleaved_stages_on_one_ipu(staged):
    staged.set_pipelining_options(4, [0, 0], pipeline_schedule=PipelineSchedule.Interleaved)
    with raises(NotImplementedError, "The pipelining schedule 'Interleaved' does not currently su"):
        staged._ipu_pipeline(True, 4)
    assert staged._ipu_pipeline(False, 4) is not None


def test_one_stage_is_no_pipeline(model):
    assign(model, [0, 0, 0])
    with raises(ValueError, "Pipeline requires at least two computational stages. Received: 1"):
        model._ipu_pipeline(False, 4)


def test_scopes_that_leave_a_layer_out(strategy):
    with strategy.scope():
        inputs = keras.Input([2])
        with PipelineStage(0):
            x = dense("a")(inputs)
        model = keras.Model(inputs, dense("b")(x))
    message = "All layers of a pipelined model must have an associated pipeline stage. However, b"
    with raises(ValueError, message):
        model._ipu_pipeline(False, 4)
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
        model._ipu_pipeline(False, 4)


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
        models[0]._ipu_pipeline(False, 4)
    for name in ("train", "predict"):
        with raises(RuntimeError, message.format(f"{name}_step", "steps")):
            models[1]._ipu_pipeline(name == "train", 4, name)
    assert models[1]._ipu_pipeline(False, 4, "test") is not None


def test_what_training_asks_of_a_model(strategy):
    with strategy.scope():
        model, pipelined = OwnSteps([dense("a"), dense("b")]), sequential()
    for one in (model, pipelined):
        one.compile("sgd", "mse")
    model._ipu_check_training(5)
    model.set_gradient_accumulation_options(1)
    model._ipu_check_training(5)
    model.set_gradient_accumulation_options(2)
    message = "The function `train_step` for the model {} has been overridden. This is not"
    with raises(RuntimeError, message.format(model.name)):
        model._ipu_check_training(4)
    pipelined.set_gradient_accumulation_options(2)
    with raises(RuntimeError, "The model has been configured to use gradient accumulation for tra"):
        pipelined._ipu_check_training(5)
    pipelined.set_pipeline_stage_assignment([0, 1, 1])
    pipelined.set_pipelining_options(4)
    with raises(RuntimeError, "The pipelined model has been configured to use gradient accumulat"):
        pipelined._ipu_check_training(6)
    pipelined._ipu_check_training(8)


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
        model._ipu_check_training(4)

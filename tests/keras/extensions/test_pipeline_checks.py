import re
from dataclasses import replace

import keras
import pytest
import tensorflow as tf

from ipu_keras.keras.extensions import pipeline_checks as checks
from ipu_keras.keras.extensions.layer_calls import LayerCall, functional_calls
from ipu_keras.pipelining_ops import PipelineSchedule
from ipu_keras.program import Pipeline

GROUPED, INTERLEAVED, _ = PipelineSchedule


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


def chain(*names):
    """A call of a layer after the other."""
    return [
        LayerCall(keras.layers.Dense(1, name=name), 0, None, (index - 1,) * (index > 0))
        for index, name in enumerate(names)
    ]


# Stages


def test_stages_of_scopes_or_of_an_assignment():
    calls = chain("a", "b")
    assert checks.resolved_stages(calls, None) == (None, None)
    assert checks.resolved_stages(calls, (0, 1)) == (0, 1)
    assert checks.resolved_stages(calls, ()) == (None, None)


def test_operations_follow_their_latest_input():
    #  a ── c
    #  b ──┴─ relu ─ d;  cast takes an input of the model
    cast, add, relu = (
        LayerCall(keras.Operation(), 0, stage, inbound)
        for stage, inbound in ((None, ()), (2, (1, 2)), (None, (3,)))
    )
    a, b, d = chain("a", "b", "d")
    calls = [cast, a, b, add, relu, d]
    assert checks.resolved_stages(calls, (0, 1, 3)) == (0, 0, 1, 1, 1, 3)
    assert checks.resolved_stages(calls, (0, 1, 3), (None, 2, None)) == (0, 0, 1, 2, 2, 3)
    assert checks.resolved_stages(calls, None) == (0, None, None, 2, 2, None)
    assert checks.resolved_stages(calls, ()) == (None,) * 6


def test_an_assignment_of_another_length():
    message = (
        "The length of the provided `pipeline_stage_assignment` (3) does not match the number of "
        "layers in the graph (2). Each layer needs a stage"
    )
    with raises(ValueError, message):
        checks.resolved_stages(chain("a", "b"), (0, 0, 1))


def test_stages_that_can_be():
    checks.check_stages(chain("a", "b", "c"), (0, 0, 1))
    # Side by side: the order of independent calls is free.
    a, b = chain("a", "b")
    checks.check_stages([a, LayerCall(b.operation, 0, None, ())], (1, 0))


def test_a_layer_without_a_stage():
    message = (
        "All layers of a pipelined model must have an associated pipeline stage. However, b has "
        "not been assigned to one. Pipeline stages can be assigned when a layer is constructed, or "
    )
    with raises(ValueError, message):
        checks.check_stages(chain("a", "b"), (0, None))
    with raises(ValueError, message):
        checks.check_sequence(chain("a", "b"), (0, None))


def test_a_stage_without_layers():
    message = (
        "All stages in a pipeline must have at lease one layer assigned to them. The highest stage "
        "with an assignment is 3, but there is no layer in the stages [0, 2]."
    )
    with raises(RuntimeError, message):
        checks.check_stages(chain("a", "b"), (1, 3))


def test_a_dependency_on_a_later_stage():
    message = (
        "Layer b in pipeline stage 0 has a dependency from a pipeline stage which has not yet been "
        "executed. Layers can only use outputs from current or previous pipeline stages.\n"
        "Received: it takes that of a in stage 1."
    )
    with raises(ValueError, message):
        checks.check_stages(chain("a", "b"), (1, 0))


def test_sequences():
    checks.check_sequence(chain("a", "b", "c"), (0, 1, 1))
    message = (
        "The first layer in a pipelined sequential model needs to be assigned to the 0th pipeline "
        "stage, however it was assigned to 1."
    )
    with raises(ValueError, message):
        checks.check_sequence(chain("a", "b"), (1, 2))


@pytest.mark.parametrize(("stages", "stage", "previous"), [((0, 2), 2, 0), ((0, 1, 0), 0, 1)])
def test_sequences_that_jump(stages, stage, previous):
    name = "abc"[len(stages) - 1]
    message = (
        f"Layer {name} has been assigned to pipeline stage {stage}, however the previous layer in "
        f"the Sequential model was assigned to pipeline stage {previous}."
    )
    with raises(ValueError, message):
        checks.check_sequence(chain(*"abc"[: len(stages)]), stages)


# Mappings and schedules


def test_a_mapping_of_another_length():
    message = "Each stage must be mapped to an IPU: 3 mappings != 2 stages\nGive `device_mapping`"
    with raises(ValueError, message):
        checks.check_mapping((0, 1, 2), 2)
    checks.check_mapping((5, 5), 2)


def test_weights_that_stages_share():
    inputs, shared = keras.Input([2]), keras.layers.Dense(2, name="shared")
    dropout = keras.layers.Dropout(0.5)
    x = shared(keras.layers.Dense(2)(dropout(shared(inputs))))
    calls = functional_calls(keras.Model(inputs, dropout(x)))
    stages = (0, 0, 1, 2, 2)
    checks.check_shared_weights(calls, stages, (0, 1, 0))
    message = (
        "The weight shared/kernel is used in pipeline stages 0 and 2, which are on the IPUs 0 and "
        "2, but an input can only be used by pipeline stages on the same IPU. Map these stages to "
        "one IPU using the `device_mapping` argument of `set_pipelining_options`."
    )
    with raises(tf.errors.UnimplementedError, message):
        checks.check_shared_weights(calls, stages, (0, 1, 2))


def test_a_layer_without_weights_may_be_on_several_ipus():
    inputs, relu = keras.Input([2]), keras.layers.ReLU()
    calls = functional_calls(keras.Model(inputs, relu(relu(inputs))))
    checks.check_shared_weights(calls, (0, 1), (0, 1))


def test_interleaved_stages_on_one_ipu():
    repeated = Pipeline(device_mapping=(0, 1, 0), schedule=INTERLEAVED)
    message = (
        "The pipelining schedule 'Interleaved' does not currently support multiple pipeline stages "
        "on the same device for training graphs. Please use a different pipeline schedule.\nGive"
    )
    with raises(NotImplementedError, message):
        checks.check_depth(repeated, True, 6)
    checks.check_depth(repeated, False, 1)
    checks.check_depth(replace(repeated, schedule=GROUPED), True, 6)


def test_a_depth_that_does_not_fill_the_pipeline():
    pipeline = Pipeline(device_mapping=(0, 1))
    message = (
        "The number of iterations of the pipeline must be a multiple of 4, but it is 6. This "
        "number might be called `gradient_accumulation_count`"
    )
    with raises(tf.errors.FailedPreconditionError, message):
        checks.check_depth(pipeline, True, 6)
    checks.check_depth(pipeline, True, 8)
    checks.check_depth(pipeline, False, 6)


# What the execution asks


@pytest.mark.parametrize(
    ("pipelined", "what", "setter"),
    [
        (True, "pipelined model", "set_pipelining_options"),
        (False, "model", "set_gradient_accumulation_options"),
    ],
)
def test_an_execution_that_does_not_end_with_an_update(pipelined, what, setter):
    message = (
        f"The {what} has been configured to use gradient accumulation for training, however the "
        "current `steps_per_execution` value (set to 6) is not divisible by "
        "`gradient_accumulation_steps_per_replica` (4). You need to adjust either "
        "`steps_per_execution` or`gradient_accumulation_steps_per_replica` to make sure that "
        "`steps_per_execution` is divisible by `gradient_accumulation_steps_per_replica`.\nChange "
        f"`steps_per_execution` of `compile`, or the count of `{setter}`."
    )
    with raises(RuntimeError, message):
        checks.check_steps(6, 4, pipelined=pipelined)
    checks.check_steps(8, 4, pipelined=pipelined)


@pytest.mark.parametrize(("num_ipus", "needed"), [(1, 2), (2, 4), (6, 4)])
def test_a_device_with_too_few_ipus(num_ipus, needed):
    message = (
        f"Current device has {num_ipus} IPUs attached, however the current model requires a "
        f"multiple of {needed} IPUs.\nConfigure the device with so many"
    )
    with raises(ValueError, message):
        checks.check_ipus(num_ipus, needed)
    checks.check_ipus(4, 2)


class OwnSteps(keras.Model):
    def train_step(self, data):
        return super().train_step(data)

    def predict_step(self, data):
        return super().predict_step(data)


@pytest.mark.parametrize(
    ("pipelined", "what"), [(True, "pipelined Keras models"), (False, "gradient accumulation")]
)
def test_a_model_with_steps_of_its_own(strategy, pipelined, what):
    with strategy.scope():
        models = OwnSteps(name="own"), keras.Sequential(name="plain")
        models[1].test_step = models[1].test_step
    for model, step in zip(models, ("train_step", "test_step"), strict=True):
        message = (
            f"The function `{step}` for the model {model.name} has been overridden. This is not "
            f"supported for {what}.\nTheir programs are made of Keras's own function"
        )
        with raises(RuntimeError, message):
            checks.check_step_not_overridden(model, step, pipelined=pipelined)
    checks.check_step_not_overridden(models[0], "test_step", pipelined=pipelined)
    checks.check_step_not_overridden(models[1], "train_step", pipelined=pipelined)


class OwnSequential(keras.Sequential):
    def call(self, inputs):
        return super().call(inputs)


def test_a_model_with_a_call_of_its_own(strategy):
    with strategy.scope():
        inputs = keras.Input([2])
        functional = keras.Model(inputs, keras.layers.Dense(1)(inputs))
        checks.check_call_not_overridden(functional)
        checks.check_call_not_overridden(keras.Sequential())
        checks.check_call_not_overridden(OwnSteps())
        functional.call = functional.call
        message = "The function `call` for the model {} has been overridden. This is not supported"
        with raises(RuntimeError, message.format(functional.name)):
            checks.check_call_not_overridden(functional)
        with raises(RuntimeError, message.format("own")):
            checks.check_call_not_overridden(OwnSequential(name="own"))

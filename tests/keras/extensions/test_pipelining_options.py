import re

import keras
import pytest
import tensorflow as tf

from ipu_keras.keras.extensions.pipelining_options import PipeliningOptions
from ipu_keras.pipelining_ops import PipelineSchedule, PipelineStageOptions, RecomputationMode
from ipu_keras.settings.gradient_accumulation import (
    GradientAccumulationReductionMethod as Reduction,
)


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


@pytest.fixture
def model(strategy):
    with strategy.scope():
        return keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])


@pytest.fixture
def unchanged(model):
    """What is refused changes nothing."""
    before = model._ipu.options
    yield
    assert model._ipu.options is before


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("device_mapping", [0, (0, 1), ["0"], [0, 1.0], [True], [0, -1]])
def test_a_device_mapping_that_is_no_list_of_integers(model, device_mapping):
    with raises(ValueError, "Expected `device_mapping` to be a list of integers.\nEach is the IPU"):
        model.set_pipelining_options(device_mapping=device_mapping)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("key", "rest"),
    [
        ("gradient_accumulation_count", "Set the `gradient_accumulation_steps_per_replica` arg"),
        *[
            (key, "This argument is automatically set by Keras.")
            for key in (
                "computational_stages",
                "repeat_count",
                "inputs",
                "infeed_queue",
                "outfeed_queue",
                "optimizer_function",
            )
        ],
        *[
            (key, "This argument is not compatible with Keras.")
            for key in ("outfeed_loss", "outfeed_mask", "batch_serialization_iterations")
        ],
    ],
)
def test_keys_that_cannot_be_forwarded(model, key, rest):
    with raises(ValueError, f"Found `{key}` key in `pipelining_kwargs`. {rest}"):
        model.set_pipelining_options(2, **{key: None})


STAGE_OPTIONS = PipelineStageOptions(matmul_options={"availableMemoryProportion": "0.1"})


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"stages": 3},
            "pipeline() has no argument 'stages'. Its arguments are: accumulate_outfee",
        ),
        ({"accumulate_outfeed_dtype": "int8"}, "`accumulate_outfeed_dtype` must be None, a float"),
        ({"gradient_accumulation_dtype": 1.5}, "`gradient_accumulation_dtype` must be None, a fl"),
        ({"pipeline_schedule": "Grouped"}, "`pipeline_schedule` must be a PipelineSchedule. Rece"),
        ({"recomputation_mode": 1}, "`recomputation_mode` must be a RecomputationMode. Received:"),
        (
            {"forward_propagation_stages_poplar_options": STAGE_OPTIONS},
            "`forward_propagation_stages_poplar_options` must be a list of PipelineStageOptions",
        ),
        (
            {"backward_propagation_stages_poplar_options": [{}]},
            "`backward_propagation_stages_poplar_options` must be a list of PipelineStageOptions",
        ),
        (
            {"weight_update_poplar_options": [STAGE_OPTIONS]},
            "`weight_update_poplar_options` must be a PipelineStageOptions. Received: weight_up",
        ),
        *[
            ({name: 1}, f"`{name}` must be True, False or None. Received: {name}=1")
            for name in (
                "offload_weight_update_variables",
                "replicated_optimizer_state_sharding",
                "offload_activations",
                "offload_gradient_accumulation_buffers",
                "replicated_weight_sharding",
                "offload_weights",
                "continuous_weight_updates",
            )
        ],
        ({"name": 1}, "`name` must be a string. Received: name=1"),
    ],
)
def test_arguments_of_a_wrong_type(model, kwargs, message):
    with raises(TypeError, message):
        model.set_pipelining_options(2, **kwargs)


@pytest.mark.usefixtures("unchanged")
def test_accumulate_outfeed_of_a_wrong_type(model):
    with raises(TypeError, "`accumulate_outfeed` must be True, False or None. Received: accumula"):
        model.set_pipelining_options(2, accumulate_outfeed=2)


@pytest.mark.usefixtures("unchanged")
def test_continuous_weight_updates(model):
    with raises(NotImplementedError, "Continuous weight updates are currently not supported."):
        model.set_pipelining_options(2, continuous_weight_updates=True)


@pytest.mark.usefixtures("unchanged")
def test_sharding_of_a_state_that_is_not_offloaded(model):
    message = (
        "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by using "
        "`offload_weight_update_variables=True`.\nReceived: offload_weight_update_variables=False"
    )
    options = {"offload_weight_update_variables": False}
    with raises(ValueError, message):
        model.set_pipelining_options(2, replicated_optimizer_state_sharding=True, **options)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("schedule", "mode"),
    [
        (PipelineSchedule.Sequential, RecomputationMode.RecomputeThenBackpropagate),
        (PipelineSchedule.Interleaved, RecomputationMode.RecomputeAndBackpropagateInterleaved),
    ],
)
def test_a_recomputation_mode_that_the_schedule_does_not_support(model, schedule, mode):
    message = f"The schedule '{schedule.name}' supports the recomputation modes"
    with raises(ValueError, message):
        model.set_pipelining_options(2, pipeline_schedule=schedule, recomputation_mode=mode)


def test_defaults(model):
    model.set_pipelining_options()
    assert model._ipu.options.pipelining == PipeliningOptions()


def test_every_argument_that_is_set(model):
    model.set_pipelining_options(
        8,
        [0, 1, 1],
        True,
        "running_mean",
        gradient_accumulation_dtype="float32",
        accumulate_outfeed_dtype=tf.float16,
        pipeline_schedule=PipelineSchedule.Sequential,
        recomputation_mode=RecomputationMode.RecomputeAndBackpropagateInterleaved,
        forward_propagation_stages_poplar_options=[STAGE_OPTIONS] * 3,
        backward_propagation_stages_poplar_options=(STAGE_OPTIONS,) * 3,
        weight_update_poplar_options=STAGE_OPTIONS,
        offload_weight_update_variables=True,
        replicated_optimizer_state_sharding=True,
        offload_activations=False,
        offload_gradient_accumulation_buffers=True,
        replicated_weight_sharding=True,
        offload_weights=False,
        continuous_weight_updates=False,
        name="pipeline",
    )
    assert model._ipu.options.pipelining == PipeliningOptions(
        steps_per_replica=8,
        reduction=Reduction.RUNNING_MEAN,
        device_mapping=(0, 1, 1),
        accumulate_outfeed=True,
        accumulate_outfeed_dtype=tf.float16,
        gradient_accumulation_dtype=tf.float32,
        schedule=PipelineSchedule.Sequential,
        recomputation_mode=RecomputationMode.RecomputeAndBackpropagateInterleaved,
        forward_options=(STAGE_OPTIONS,) * 3,
        backward_options=(STAGE_OPTIONS,) * 3,
        weight_update_options=STAGE_OPTIONS,
        offload_weight_update_variables=True,
        replicated_optimizer_state_sharding=True,
        offload_activations=False,
        offload_gradient_accumulation_buffers=True,
        replicated_weight_sharding=True,
        offload_weights=False,
        name="pipeline",
    )


def test_poplar_options_without_a_model_are_named_once(model):
    flags = {"availableMemoryProportion": "0.1", "perConvReservedTiles": "50"}
    stage = PipelineStageOptions(convolution_options=flags)
    update = PipelineStageOptions(matmul_options={"partialsType": "half", "cycleBackOff": "0.1"})
    with pytest.warns(UserWarning, match="has no effect on a stage here") as warned:
        model.set_pipelining_options(
            4,
            forward_propagation_stages_poplar_options=[stage, stage],
            weight_update_poplar_options=update,
        )
    assert [str(warning.message) for warning in warned] == [
        "Poplar's 'cycleBackOff', 'perConvReservedTiles' has no effect on a stage here: of its "
        "options, availableMemoryProportion and partialsType have a model."
    ]
    assert warned[0].filename == __file__

"""What every door builds: validation in one place."""

import dataclasses

import pytest

from ipu_keras.ir import TensorSpec
from ipu_keras.program import FEED_DTYPES, Accumulation, OutfeedMode, Pipeline, Program, stage_scope
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_keras.settings.pipeline_choices import PipelineSchedule, PipelineStageOptions

IMAGE = TensorSpec((8, 28, 28, 1), "float32")


def program(**changes):
    arguments = {
        "name": "train",
        "step": lambda element: element,
        "infeed": (IMAGE,),
        "unflatten": tuple,
        "repeat_count": 4,
    }
    return Program(**{**arguments, **changes})


def test_defaults():
    made = program()
    assert made.outfeed_mode is OutfeedMode.LAST
    assert made.compiled is None


def test_arguments_have_names():
    with pytest.raises(TypeError, match="positional"):
        Program("train", lambda element: element, (), tuple, 1)


def test_reports_have_the_name_of_the_model():
    assert program(name="train").title == "train"
    assert program(name="train", model_name="classifier").title == "classifier.train"


def test_programs_are_values():
    made = program()
    assert made == dataclasses.replace(made)
    assert made != dataclasses.replace(made, repeat_count=5)
    assert hash(made) == hash(dataclasses.replace(made))
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.repeat_count = 5


@pytest.mark.parametrize("infeed", [(), (TensorSpec((), "int32"),), (IMAGE, IMAGE)])
def test_infeeds(infeed):
    assert program(infeed=infeed).infeed == infeed


@pytest.mark.parametrize("repeat_count", [0, -1, 1.0, "4", None])
def test_a_repeat_count_that_is_no_count(repeat_count):
    with pytest.raises(ValueError) as error:
        program(repeat_count=repeat_count)
    assert str(error.value) == (
        "`repeat_count` must be a positive integer. "
        f"Received: repeat_count={repeat_count!r} for program 'train'"
    )


@pytest.mark.parametrize("num_replicas", [0, 2.0])
def test_a_number_of_replicas_that_is_no_count(num_replicas):
    with pytest.raises(ValueError) as error:
        program(num_replicas=num_replicas)
    assert str(error.value) == (
        "`num_replicas` must be a positive integer. "
        f"Received: num_replicas={num_replicas!r} for program 'train'"
    )


def test_accumulation():
    assert Accumulation() == Accumulation(
        count=1, reduction=GradientAccumulationReductionMethod.SUM
    )
    assert program(accumulation=Accumulation(count=2)).accumulation.count == 2
    with pytest.raises(ValueError, match=r"^`count` must be a positive integer. Received: count=0"):
        Accumulation(count=0)
    with pytest.raises(ValueError) as error:
        program(accumulation=Accumulation(count=3))
    assert str(error.value) == (
        "`repeat_count` must be a multiple of the accumulated steps. Received: repeat_count=4, "
        "accumulation of 3 for program 'train'"
    )


@pytest.mark.parametrize(
    ("device_mapping", "num_ipus"), [((0, 1), 2), ((0, 1, 2), 4), ((0, 0), 1), ((1, 0, 4), 8)]
)
def test_a_replica_has_a_power_of_two_of_ipus(device_mapping, num_ipus):
    pipeline = Pipeline(device_mapping=device_mapping)
    assert pipeline.num_stages == len(device_mapping)
    assert pipeline.num_ipus == num_ipus
    assert pipeline.schedule is PipelineSchedule.Grouped


def test_pipelines_that_cannot_be():
    with pytest.raises(ValueError, match=r"^Pipeline requires at least two computational stages"):
        Pipeline(device_mapping=(0,))
    with pytest.raises(ValueError) as error:
        Pipeline(device_mapping=(0, 1), forward_options=(PipelineStageOptions(),))
    assert str(error.value) == (
        "`forward_options` must have an entry for each of the 2 stages. Received: 1"
    )


def test_stage_scopes():
    assert [stage_scope(k) for k in (0, 12)] == ["pipeline_stage_0", "pipeline_stage_12"]


def test_a_shape_that_is_not_known():
    with pytest.raises(ValueError) as error:
        program(infeed=(IMAGE, TensorSpec((None, 3), "float32")))
    assert str(error.value) == (
        "The infeed of program 'train' has a shape (None, 3) at index 1, which is not fully "
        "defined. Give every dimension, for instance by batching with `drop_remainder=True`."
    )


def test_dtypes_of_feeds():
    assert sorted(FEED_DTYPES) == ["bool", "float16", "float32", "int32", "int8", "uint8"]

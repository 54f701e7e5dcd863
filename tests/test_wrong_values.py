"""Wrong values for what users set up, share out and profile: each error names its argument."""

import random

import pytest
from correct_call import configure
from correct_calls import correct_calls
from wrong_calls import INTERNAL_ERRORS, wrong_values

from ipu_keras.machine.system import SYSTEM

CALLS = {
    call.name: call
    for call in correct_calls()
    if call.name
    in {
        "IPUStrategy",
        "HostEmbedding",
        "HostEmbeddingOptimizerSpec",
        "HostEmbeddingSGDGAOptimizerSpec",
        "PipelineStage",
        "all_to_all",
        "configure_ipu_system",
        "get_num_of_ipus_in_device",
        "get_shard_from_colocation",
        "last_report",
        "profile",
        "propagate_sharding",
        "reset_ipu_seed",
        "set_asynchronous_callbacks",
        "set_gradient_accumulation_options",
        "set_infeed_queue_options",
        "set_outfeed_queue_options",
        "set_pipeline_stage_assignment",
        "set_pipelining_options",
        "sharding.dependencies",
        "sharding.has_attr",
        "suggest_pipeline",
        "what_if",
    }
}
# Calls are of models that are made in a scope: collecting tests must configure nothing for others.
SYSTEM.reset()
# Stages that a Sequential model cannot have are refused in documented words without the name,
# and what `mode` says is no more of a model if a function is in its place.
OTHER_NAMES = {"pipeline_stage_assignment": "pipeline stage", "model_or_function": "mode"}
SAMPLE = 10


@pytest.fixture(autouse=True)
def default_system():
    SYSTEM.reset()
    configure()
    yield
    SYSTEM.reset()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "argument"),
    [(name, argument) for name, call in CALLS.items() for argument in call.arguments],
)
def test_an_error_names_its_argument_and_leaves_things_as_they_were(name, argument):
    call = CALLS[name]
    values = wrong_values(call.arguments[argument])
    for described in random.Random(f"{name} {argument}").sample(sorted(values), SAMPLE):
        try:
            call.function(**(call.arguments | {argument: values[described]}))
        except INTERNAL_ERRORS as error:
            pytest.fail(f"{described}: {error!r}")
        except Exception as error:
            text = "\n".join([str(error), *getattr(error, "__notes__", [])])
            if argument not in text and OTHER_NAMES.get(argument, "\0") not in text:
                pytest.fail(f"{described}: {error!r}")
    call.function(**call.arguments)


@pytest.mark.parametrize(
    ("name", "argument", "value", "error", "message"),
    [
        ("suggest_pipeline", "model", None, TypeError, "`model` must be .* Received: model=None"),
        ("suggest_pipeline", "schedule", "x", TypeError, "`schedule` must be .* schedule='x'"),
        ("suggest_pipeline", "num_ipus", 10**12, ValueError, "Received: num_ipus=1000000000000"),
        ("suggest_pipeline", "mode", [], ValueError, r"`mode` must be .* mode=\[\]"),
        ("what_if", "batch_size", [10**12], ValueError, "`batch_size` .* batch_size=1000000000000"),
        ("what_if", "mode", 0, ValueError, "`mode` must be one of .* Received: mode=0"),
        ("profile", "name", "\0", ValueError, "`name` must be a text of one line"),
        ("IPUStrategy", "ipu_device", "", ValueError, "`ipu_device` must be .* ipu_device=''"),
        ("IPUStrategy", "ipu_device", "x", ValueError, "`ipu_device` must be .* ipu_device='x'"),
        (
            "IPUStrategy",
            "enable_keras_extensions",
            "False",
            TypeError,
            "`enable_keras_extensions` must be True or False. .*='False'",
        ),
        ("set_asynchronous_callbacks", "asynchronous", 1, TypeError, "`asynchronous` must be True"),
        ("set_pipelining_options", "gradient_accumulation_dtype", 2, TypeError, "a floating point"),
        ("HostEmbedding", "partition_strategy", [], ValueError, "`partition_strategy` must be"),
        ("all_to_all", "split_dimension", True, ValueError, "Received: split_dimension=True"),
        ("sharding.has_attr", "o", None, TypeError, "`o` must be .* Received: o=None"),
        ("configure_ipu_system", "reset_configuration", "no", TypeError, "must be True or False"),
        (
            "get_num_of_ipus_in_device",
            "ipu_device",
            None,
            ValueError,
            "There is no IPU device None. .* Received: ipu_device=None",
        ),
    ],
)
def test_wrong_values(name, argument, value, error, message):
    call = CALLS[name]
    with pytest.raises(error, match=message):
        call.function(**(call.arguments | {argument: value}))

"""The command `ipu-keras suggest-pipeline`, which balances stages."""

import argparse
from typing import Any

import keras

from ipu_keras.keras.suggest_pipeline import suggested
from ipu_keras.settings.pipeline_choices import PipelineSchedule
from ipu_keras_tools.modelling import options_of, refusals_as_usage_errors, subject_and_specs
from ipu_keras_tools.results import print_result


def run(given: argparse.Namespace) -> int:
    """Prints the stage of each layer, and the line of code that assigns them."""
    model, specs = subject_and_specs(given)
    options = options_of(given)
    if given.schedule is not None:
        options["schedule"] = PipelineSchedule[given.schedule]
    num_ipus = options.pop("num_ipus")
    with refusals_as_usage_errors():
        found, table = suggested(model, num_ipus, *specs, **options)
    stages = [_stage(one) for one in found]
    names = [_layer(model, place, one) for place, one in enumerate(found)]
    plain = [{"layer": name, "stage": stage} for name, stage in zip(names, stages, strict=True)]
    lines = [table.rstrip()]
    # Only a Sequential model takes a list of numbers; others take an assignment for each call
    # of a layer.
    if isinstance(model, keras.Sequential):
        lines.append(f"model.set_pipeline_stage_assignment({stages})")
    else:
        lines += [f"{name}: stage {stage}" for name, stage in zip(names, stages, strict=True)]
    print_result(given, plain, "\n".join(lines))
    return 0


def _stage(one: Any) -> int:
    return one if isinstance(one, int) else one.pipeline_stage


def _layer(model: keras.Model, place: int, one: Any) -> str:
    return model.layers[place].name if isinstance(one, int) else one.layer.name

"""Options of a program in words for people; `plain_options` has them for programs."""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.machine.target import Target
from ipu_keras.program import Pipeline
from ipu_keras.report.plain_options import plain_options
from ipu_keras.settings.pipeline_choices import recomputation_mode

# Options that without a choice leave something as it is, where "none" would mislead.
_ABSENT = {"dtype": "as traced", "gradient_accumulation_dtype": "that of the gradients"}


def ipus_in_words(options: CostOptions) -> str:
    """Says how many IPUs a program has, and how they share the work.

    Example:

    >>> ipus_in_words(CostOptions()), ipus_in_words(CostOptions(num_replicas=2, num_ipus=4))
    ('1 IPU', '2 replicas of 4 IPUs, which share the layers; one computes at a time')
    """
    each, replicas = options.ipus_per_replica, options.num_replicas
    ipus = "1 IPU" if each == 1 else f"{each} IPUs"
    if options.pipeline is not None:
        ipus += f" in a pipeline of {options.num_stages} stages"
    elif each > 1:
        ipus += ", which share the layers; one computes at a time"
    return ipus if replicas == 1 else f"{replicas:,} replicas of {ipus}"


def options_in_words(options: CostOptions) -> tuple[tuple[str, str], ...]:
    """Returns the options that `plain_options` gives in words, those of a pipeline one by one.

    Example:

    >>> dict(options_in_words(CostOptions(matmul_options={"partialsType": "half"})))[
    ...     "matmul options"
    ... ]
    'partialsType half'
    """
    return tuple(_named(options))


def choice_in_words(name: str, value: Any) -> str:
    """Says the value of one option as users give it; counts are written without commas.

    Example:

    >>> choice_in_words("recomputation", True), choice_in_words("dtype", None)
    ('yes', 'as traced')
    """
    if value is None:
        return _ABSENT.get(name, "none")
    if isinstance(value, Pipeline):
        ipus = ", ".join(map(str, value.device_mapping))
        return f"{value.schedule.name}, stages on IPUs {ipus}"
    if isinstance(value, Enum | Target):
        return value.name
    return _in_words(value) if isinstance(value, bool | Mapping) else str(value)


def _named(options: CostOptions) -> Iterator[tuple[str, str]]:
    yield "IPUs", ipus_in_words(options)
    for name, value in plain_options(options).items():
        if name == "pipeline":
            yield from _of_pipeline(options, value)
        elif name not in ("num_ipus", "num_replicas"):  # "IPUs" says both
            yield _words(name), choice_in_words(name, None) if value is None else _in_words(value)


def _of_pipeline(options: CostOptions, choices: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields what was chosen of a pipeline as it was cut; IPUs are named before."""
    pipeline = options.pipeline_as_cut
    assert pipeline is not None
    chosen = {name: value for name, value in choices.items() if value not in (None, [], False)}
    del chosen["device_mapping"]
    del chosen["recomputation_mode"]
    yield "IPU of each stage", ", ".join(map(str, pipeline.device_mapping))
    if options.recomputation:
        mode = recomputation_mode(pipeline.schedule, pipeline.recomputation_mode).name
        yield "pipeline: recomputation mode", mode
    for name, value in chosen.items():
        yield f"pipeline: {_words(name)}", _in_words(value)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        given = {name: each for name, each in value.items() if each}
        return ", ".join(f"{_words(name)} {_in_words(each)}" for name, each in given.items())
    if isinstance(value, list):
        if any(isinstance(each, Mapping) for each in value):
            stages = (f"stage {k}: {_in_words(each) or 'none'}" for k, each in enumerate(value))
            return "; ".join(stages)
        return ", ".join(map(_in_words, value))
    return str(value)

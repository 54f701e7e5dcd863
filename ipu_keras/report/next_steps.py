"""What to do about the findings of a report, the most urgent first, each with a line to write.

Nothing is modelled here. What a change would gain is known for fixes only; for the others, the
line to write asks the model.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ipu_keras.advice.changes import is_mostly_single
from ipu_keras.report.figures import Figures
from ipu_keras.report.rows import NO_LAYER

# An execution begins with a copy, which this many steps share.
_MANY_STEPS = 32
# The share of a step's cycles from which on a change is worth a line.
_WORTH_IT = 0.05
# The share of time in which IPUs wait that is worth a change; and how many times the mean of all
# stages a stage takes that is worth balancing.
_LONG_WAIT, _SLOW_STAGE = 0.2, 1.25
# The share of guessed cycles from which on figures are no ground for decisions.
_MANY_GUESSES = 0.5

_PROPORTION = "config.convolutions.poplar_options = config.matmuls.poplar_options"
_ACCUMULATE = "model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica={})"


@dataclass(frozen=True)
class NextStep:
    """Something to do about a program.

    Args:
        finding: The reason to do it, as a sentence without a full stop.
        lines: Lines of Python to write, for a Keras model `model`, the shapes `specs` that were
            given to `profile`, and the `IPUConfig` `config` before its `configure_ipu_system`.
    """

    finding: str
    lines: tuple[str, ...]


def next_steps(report: Figures) -> tuple[NextStep, ...]:
    """Returns what to do, in order of urgency: fit, wait less, know more, be faster."""
    found = (*_to_fit(report), *_to_wait_less(report), *_to_know_more(report))
    # Advice on speed is of no use for a program that cannot run.
    return (*found, *_to_be_faster(report)) if report.fits else found


def lines_of(changes: Mapping[str, Any], num_stages: int = 1) -> tuple[str, ...]:
    """Returns the lines that users write to change a program.

    Args:
        changes: Choices by name, as in `Fix`.
        num_stages: Stages that its pipeline has before they are cut; 1 without a pipeline.

    Example:

    >>> lines_of({"dtype": "float16", "recomputation": True})
    ('keras.config.set_dtype_policy("float16")', 'config.allow_recompute = True')
    """
    return tuple(_LINES[name](value, num_stages) for name, value in changes.items())


_LINES: dict[str, Callable[[Any, int], str]] = {
    "available_memory_proportion": lambda value, _: (
        f'{_PROPORTION} = {{"availableMemoryProportion": "{value}"}}'
    ),
    "batch_size": lambda value, _: f"model.fit(x, y, batch_size={value})",
    "dtype": lambda value, _: f'keras.config.set_dtype_policy("{value}")',
    "gradient_accumulation_count": lambda value, _: _ACCUMULATE.format(value),
    "num_ipus": lambda value, _: _pipeline_of(value),
    "pipeline_stages": lambda value, _: _pipeline_of(value),
    "recomputation": lambda value, _: f"config.allow_recompute = {value}",
    "stage_splits": lambda value, num_stages: _pipeline_of(value * num_stages),
    "steps_per_execution": lambda value, _: f"model.compile(..., steps_per_execution={value})",
}


def _pipeline_of(num_ipus: int) -> str:
    suggested = f"ipu_keras.suggest_pipeline(model, {num_ipus}, *specs)"
    return f"model.set_pipeline_stage_assignment({suggested})"


def _to_fit(report: Figures) -> Iterator[NextStep]:
    options = report.model.options
    stages = 1 if options.pipeline is None else options.pipeline.num_stages
    for fix in report.fixes:
        words = str(fix)
        yield NextStep(words[0].upper() + words[1:], lines_of(fix.changes, stages))
    if not report.fits and not report.fixes:
        yield NextStep(
            "It does not fit, and no remedy has been modelled: ask for some",
            ('ipu_keras.what_if(model, *specs, dtype=["float32", "float16"], num_ipus=[1, 2, 4])',),
        )


def _to_wait_less(report: Figures) -> Iterator[NextStep]:
    model, options, pipeline = report.model, report.model.options, report.pipeline
    if report.bound == "host":
        host = report.host_cycles + model.hidden_host_cycles
        finding = f"Copies between host and IPU take {host:,} cycles of each step"
        steps = _MANY_STEPS * options.gradient_accumulation_count
        saved = 1 / options.steps_per_execution - 1 / steps
        if saved * model.seed_cycles > _WORTH_IT * report.cycles_per_step:
            yield NextStep(
                f"{finding}; more steps in an execution share the copy that begins it",
                lines_of({"steps_per_execution": steps}),
            )
        elif not options.num_io_tiles:
            yield NextStep(
                f"{finding}; on tiles of their own they pass while the others compute",
                (
                    "config.io_tiles.num_io_tiles = 32",
                    "config.io_tiles.place_ops_on_io_tiles = True",
                ),
            )
        else:
            yield NextStep(
                f"{finding}; feed smaller numbers, and convert them on the IPU",
                ('dataset = dataset.map(lambda x, y: (tf.cast(x, "float16"), y))',),
            )
    if pipeline is not None:
        cycles = [stage.cycles for stage in pipeline.stages]
        slowest = max(cycles) * len(cycles) / max(sum(cycles), 1)
        # More micro-batches would not help here: all IPUs wait for the slow stage in every one
        # of them.
        if slowest > _SLOW_STAGE:
            yield NextStep(
                f"Stage {pipeline.slowest_stage} takes {slowest:.1f} times the mean of all "
                "stages, and the others wait for it: balance them",
                (_pipeline_of(len(cycles)),),
            )
        elif pipeline.bubble_share > _LONG_WAIT:
            yield NextStep(
                f"The IPUs wait for each other {pipeline.bubble_share:.0%} of the time, while the "
                "pipeline fills and drains: pass more micro-batches through it",
                lines_of({"gradient_accumulation_count": 2 * pipeline.num_micro_batches}),
            )
    elif options.num_ipus > 1:
        yield NextStep(
            f"The layers are on {options.num_ipus} IPUs, of which one computes at a time: as a "
            "pipeline, they compute together",
            (_pipeline_of(options.num_ipus),),
        )


def _to_know_more(report: Figures) -> Iterator[NextStep]:
    if report.recompilations:
        yield NextStep(
            f"It was compiled again {len(report.recompilations)} times; equal shapes need one "
            "program",
            ("dataset = dataset.batch(batch_size, drop_remainder=True)",),
        )
    if report.guessed_share > _MANY_GUESSES:
        yield NextStep(
            f"{report.guessed_share:.0%} of the cycles are guessed: see of which operations, "
            "before you rely on them",
            ('report.to_dataframe("op").query("confidence == \'guessed\'")',),
        )


def _to_be_faster(report: Figures) -> Iterator[NextStep]:
    options = report.model.options
    if options.dtype is None and is_mostly_single(report.model.graph):
        yield NextStep(
            "Most of what a step reads is float32: see what float16 would gain",
            ('ipu_keras.what_if(model, *specs, dtype=["float32", "float16"])',),
        )
    layers = report.layers
    if layers and layers[0].name != NO_LAYER:
        share = layers[0].cycles / max(report.busy_cycles, 1)
        yield NextStep(
            f"The layer {layers[0].name} takes the most cycles, {share:.0%} of the IPU's: see "
            "which of its operations",
            (f'[row for row in report.by("op") if row.layer == {layers[0].name!r}]',),
        )

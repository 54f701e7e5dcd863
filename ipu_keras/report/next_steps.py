"""What to do about the findings of a report, the most urgent first, each with a line to write.

What a change would gain is modelled, for fixes by whoever looked for them. Where it is not, the
line to write only shows more.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ipu_keras.advice.changes import OFFLOADED, in_words, is_mostly_single
from ipu_keras.advice.waiting import less_waiting, with_more_micro_batches
from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.program import Pipeline
from ipu_keras.report.figures import Figures
from ipu_keras.report.pipeline_view import PipelineView
from ipu_keras.report.rows import NO_LAYER
from ipu_keras.settings.pipeline_choices import PipelineSchedule

# The share of a step's cycles from which on a change is worth a line.
_WORTH_IT = 0.05
# The share of time in which IPUs wait that is worth a change; and how many times the mean of all
# stages a stage takes that is worth balancing.
_LONG_WAIT, _SLOW_STAGE = 0.2, 1.25
# The share of guessed cycles from which on figures are no ground for decisions.
_MANY_GUESSES = 0.5


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


def lines_of(changes: Mapping[str, Any], options: CostOptions | None = None) -> tuple[str, ...]:
    """Returns the lines that users write to change a program.

    Args:
        changes: Choices by name, as in `Fix`.
        options: Those that the program has now; by default those of one without any.

    Example:

    >>> lines_of({"dtype": "float16", "recomputation": True})
    ('keras.config.set_dtype_policy("float16")', 'config.allow_recompute = True')
    """
    before = CostOptions() if options is None else options
    return tuple(
        line for name, value in changes.items() for line in _LINES[name](value, before, changes)
    )


_Line = Callable[[Any, CostOptions, Mapping[str, Any]], tuple[str, ...]]


def _line(text: str) -> _Line:
    return lambda value, *_: (text.format(value),)


def _accumulation(count: int, options: CostOptions, changes: Mapping[str, Any]) -> tuple[str, ...]:
    accumulated = f"gradient_accumulation_steps_per_replica={count}"
    if options.pipeline is None and "pipeline_stages" not in changes:
        return (f"model.set_gradient_accumulation_options({accumulated})",)
    offloaded = [f"{name}={changes[name]}" for name in OFFLOADED if name in changes]
    return (f"model.set_pipelining_options(..., {', '.join([accumulated, *offloaded])})",)


def _offloaded(name: str) -> _Line:
    def line(value: Any, options: CostOptions, changes: Mapping[str, Any]) -> tuple[str, ...]:
        names = [each for each in OFFLOADED if each in changes]
        # The line of what is accumulated, or of the first of them, has all.
        if "gradient_accumulation_count" in changes or name != names[0]:
            return ()
        return (f"model.set_pipelining_options(..., {', '.join(f'{n}=True' for n in names)})",)

    return line


def _pipeline_of(
    num_stages: int, options: CostOptions, _: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    needed = Pipeline(device_mapping=tuple(range(num_stages))).num_ipus * options.num_replicas
    schedule = ""
    if options.pipeline is not None and options.pipeline.schedule is not PipelineSchedule.Grouped:
        schedule = f", schedule={options.pipeline.schedule}"
    suggested = f"ipu_keras.suggest_pipeline(model, {num_stages}, *specs{schedule})"
    return (
        f"config.auto_select_ipus = {needed}",
        f"model.set_pipeline_stage_assignment({suggested})",
    )


def _finer_pipeline(splits: int, options: CostOptions, _: Mapping[str, Any]) -> tuple[str, ...]:
    stages = 1 if options.pipeline is None else options.pipeline.num_stages
    return _pipeline_of(splits * stages, options)


_LINES: Mapping[str, _Line] = {
    "available_memory_proportion": _line(
        "config.convolutions.poplar_options = config.matmuls.poplar_options = "
        '{{"availableMemoryProportion": "{}"}}'
    ),
    "batch_size": _line("model.fit(x, y, batch_size={})"),
    "dtype": _line('keras.config.set_dtype_policy("{}")'),
    "gradient_accumulation_count": _accumulation,
    "infeed_dtype": _line(
        "dataset = dataset.map(lambda *data: keras.tree.map_structure("
        'lambda x: tf.cast(x, "{}") if x.dtype == tf.float32 else x, data))'
    ),
    "num_io_tiles": _line("config.io_tiles.num_io_tiles = {}"),
    "num_ipus": _pipeline_of,
    **{name: _offloaded(name) for name in OFFLOADED},
    "pipeline_stages": _pipeline_of,
    "place_ops_on_io_tiles": _line("config.io_tiles.place_ops_on_io_tiles = {}"),
    "recomputation": _line("config.allow_recompute = {}"),
    "stage_splits": _finer_pipeline,
    "steps_per_execution": _line("model.compile(..., steps_per_execution={})"),
}


def _to_fit(report: Figures) -> Iterator[NextStep]:
    for fix in report.fixes:
        words = str(fix)
        yield NextStep(words[0].upper() + words[1:], lines_of(fix.changes, report.model.options))
    if not report.fits and not report.fixes:
        yield NextStep(
            "It does not fit, and no change is known that would help: see what the fullest tile "
            "holds",
            ("report.layers_of_worst_tile()",),
        )


def _to_wait_less(report: Figures) -> Iterator[NextStep]:
    model, options, pipeline = report.model, report.model.options, report.pipeline
    if report.bound == "host":
        host = report.host_cycles + model.hidden_host_cycles
        before = report.cycles_per_step
        for changes, changed in less_waiting(model, _WORTH_IT):
            yield NextStep(
                f"Copies between host and IPU take {host:,} cycles of each step; with "
                f"{in_words(changes)}, a step takes {changed.cycles_per_step:,} cycles in place of "
                f"{before:,}",
                lines_of(changes, options),
            )
    if pipeline is not None:
        cycles = [stage.cycles for stage in pipeline.stages]
        slowest = max(cycles) * len(cycles) / max(sum(cycles), 1)
        # More micro-batches would not help here: all IPUs wait for the slow stage in every one
        # of them.
        if slowest > _SLOW_STAGE:
            yield NextStep(
                f"Stage {pipeline.slowest_stage} takes {slowest:.1f} times the mean of all "
                "stages, and the others wait for it: see which stages would be even",
                (f"ipu_keras.suggest_pipeline(model, {len(cycles)}, *specs)",),
            )
        elif pipeline.bubble_share > _LONG_WAIT:
            yield from _with_more_micro_batches(report, pipeline)
    elif options.num_ipus > 1:
        yield NextStep(
            f"The layers are on {options.num_ipus} IPUs, of which one computes at a time: as a "
            "pipeline, they compute together",
            _pipeline_of(options.num_ipus, options),
        )


def _with_more_micro_batches(report: Figures, pipeline: PipelineView) -> Iterator[NextStep]:
    changes, changed = with_more_micro_batches(report.model, 2 * pipeline.num_micro_batches)
    before, after = report.cycles_per_step, changed.cycles_per_step
    if changed.memory.fits and before - after >= _WORTH_IT * before:
        yield NextStep(
            f"The IPUs wait for each other {pipeline.bubble_share:.0%} of the time, while the "
            f"pipeline fills and drains; with {in_words(changes)}, a step takes {after:,} cycles "
            f"in place of {before:,}",
            lines_of(changes, report.model.options),
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

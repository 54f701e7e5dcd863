"""Reports that are held to a budget, and the message for those that do not keep it."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import pytest

import ipu_keras
from ipu_keras.advice.budgets import Limits, Remedy
from ipu_keras.internals.keras.backend import number_names_anew
from ipu_keras.keras.model_profile import remedies_of
from ipu_keras.report.compared import Compared, compared
from ipu_keras.report.difference import difference
from ipu_keras.report.report import Report
from ipu_keras.report.summary import short_summary
from ipu_keras_tools.baseline_files import read_baseline, write_baseline
from ipu_keras_tools.budget import Budget

# Totals that a baseline keeps: whole numbers, from which the others follow.
_TOTALS = ("cycles_per_step", "compute_cycles", "flops_per_step", "max_tile_bytes", "total_bytes")

# Options that already say how many IPUs a program takes.
_OWN_NUMBERS = frozenset({"num_ipus", "num_replicas", "pipeline"})


class HeldReports:
    """Makes reports, and holds each to a budget; it is what the fixture `ipu_report` gives.

    Args:
        budget: The hardware to model, and what a program may cost.
        is_held: Whether the budget is asked for; otherwise reports are only made.
        path_of: Gives the path of the baseline of the test's report k, from 0.
        written: Takes the path of each baseline that is written; `None` if none is to be
            written.
    """

    def __init__(
        self,
        *,
        budget: Budget,
        is_held: bool,
        path_of: Callable[[int], Path],
        written: Callable[[Path], None] | None,
    ):
        self._budget = budget
        self._is_held = is_held
        self._path_of = path_of
        self._written = written
        self.number = 0
        # Keras numbers the layers that have no name by how many were made before. Numbered anew,
        # they have the same names in baselines whichever tests ran before.
        number_names_anew()

    def __call__(self, model_or_function: Any, *specs: Any, **options: Any) -> Report:
        """Models a step of a model or a call of a function; fails the test if it costs too much.

        Args:
            model_or_function: A Keras model or a function, as for `ipu_keras.profile`.
            *specs: Shapes and types of arguments, as for `ipu_keras.profile`.
            **options: Options of `ipu_keras.profile`. The marker says `target` and, unless
                these or the model's stages say how many IPUs there are, `num_ipus`.

        Returns:
            The report, also if there is no budget.
        """
        __tracebackhide__ = True
        budget = self._budget
        options = {"target": budget.target, **options}
        if not _OWN_NUMBERS & options.keys() and not _has_stages(model_or_function):
            # Layers are spread over a power of two of IPUs; the rest stays unused.
            options["num_ipus"] = 1 << (budget.num_ipus.bit_length() - 1)
        report = ipu_keras.profile(model_or_function, *specs, **options)
        path = self._path_of(self.number)
        self.number += 1
        # Read before it is written, so that a test which updates its baseline can still say
        # what grew.
        before = self._baseline(path)
        if self._written is not None and write_baseline(path, figures_of(report)):
            self._written(path)
        broken = tuple(broken_limits(report, budget)) if self._is_held else ()
        if broken:
            found = _remedies(report, budget, model_or_function, specs, options)
            pytest.fail("\n".join(_message(report, budget, broken, before, found)), pytrace=False)
        return report

    def _baseline(self, path: Path) -> tuple[Path, Mapping[str, Any] | None]:
        """Returns the path, and the figures that are there."""
        try:
            return path, read_baseline(path)
        except ValueError as error:
            if self._written is None:
                pytest.fail(str(error), pytrace=False)
            return path, None


def figures_of(report: Report) -> dict[str, Any]:
    """Returns what a baseline keeps of a report: whole numbers only, which a review can read."""
    whole = compared(report)
    return {
        "program": report.name,
        "target": report.model.target.name,
        "num_ipus": report.num_ipus,
        "batch_size": report.batch_size,
        **{name: whole.totals[name] for name in _TOTALS},
        "layers": dict(whole.layers),
        "families": dict(whole.families),
        "memory": dict(whole.memory),
    }


def broken_limits(report: Report, budget: Budget) -> Iterator[str]:
    """Yields a sentence for each limit of a budget that a report does not keep."""
    memory = report.model.memory
    if report.memory_error is not None:
        yield f"It does not fit. {report.memory_error}"
    if report.num_ipus > budget.num_ipus:
        yield f"num_ipus: it takes {report.num_ipus} IPUs, and may take {budget.num_ipus}"
    share = memory.max_tile_bytes / memory.tile_bytes
    if budget.max_tile_memory < share <= 1:
        yield (
            f"max_tile_memory: {memory.max_tile_bytes:,} bytes are {share:.1%} of the fullest "
            f"tile, and may be {budget.max_tile_memory:.1%}"
        )
    if budget.max_cycles is not None and report.cycles_per_step > budget.max_cycles:
        ratio = report.cycles_per_step / budget.max_cycles
        more = f"{ratio - 1:.1%} more than" if ratio < 2 else f"{ratio:,.1f} times"
        yield (
            f"max_cycles: a step takes {report.cycles_per_step:,} cycles, {more} "
            f"{budget.max_cycles:,}"
        )


def _message(
    report: Report,
    budget: Budget,
    broken: tuple[str, ...],
    baseline: tuple[Path, Mapping[str, Any] | None],
    found: tuple[Remedy, ...],
) -> Iterator[str]:
    yield f"{report.name} does not keep {budget}"
    yield from (f"- {line}" for line in broken)
    yield ""
    yield short_summary(report)
    path, before = baseline
    if before is None:
        yield f"There is no baseline to compare it with: `pytest --ipu-update` writes {path.name}"
    else:
        yield from _growth(before, report, path)
    yield ""
    if found:
        yield "What would help, by the model:"
        yield from (f"{place}. {remedy}" for place, remedy in enumerate(found, 1))
    else:
        yield "Of the changes that were tried, none helps"


def _growth(before: Mapping[str, Any], report: Report, path: Path) -> Iterator[str]:
    after = figures_of(report)
    change = difference(_compared(before), _compared(after))
    grown = change.grown()
    for name in ("program", "target", "num_ipus", "batch_size"):
        if before.get(name) != after[name]:
            yield f"The baseline is of another {name}: {before.get(name)!r}, now {after[name]!r}"
    if grown is None:
        yield f"Nothing has grown since the baseline {path.name}"
    else:
        yield f"What has grown since the baseline {path.name}:"
        yield grown.rstrip()


def _compared(figures: Mapping[str, Any]) -> Compared:
    """Makes figures of a baseline into what `difference` compares."""
    return Compared(
        name=f"{figures.get('program')} on {figures.get('target')}",
        settings={},
        totals={name: figures[name] for name in _TOTALS if name in figures},
        layers=figures.get("layers", {}),
        families=figures.get("families", {}),
        memory=figures.get("memory", {}),
    )


def _remedies(
    report: Report, budget: Budget, subject: Any, specs: tuple, options: Mapping[str, Any]
) -> tuple[Remedy, ...]:
    tile_bytes = report.model.memory.tile_bytes
    limits = Limits(
        max_cycles=budget.max_cycles,
        max_tile_bytes=int(budget.max_tile_memory * tile_bytes),
        max_ipus=budget.num_ipus,
    )
    return remedies_of(report, limits, subject, *specs, **options)


def _has_stages(subject: Any) -> bool:
    """Whether a model is put on several IPUs by its own pipeline."""
    if not isinstance(subject, keras.Model) or not hasattr(subject, "_ipu"):
        return False
    return subject._ipu.stages.staged_calls() is not None

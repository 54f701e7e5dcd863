"""Finds what would make a program keep limits of its own, each remedy modelled.

A budget asks for fewer cycles or a part of the memory; `fixes` are for what does not fit at all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ipu_keras.advice.changes import in_words, is_mostly_single
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.passes import model_graph

# Times as many steps of an execution, for programs that wait for the host.
_MORE_STEPS = 32
# Batches are halved so often; each is traced anew.
_BATCH_HALVINGS = 2
# A remedy that saves less than this share of what is too much is none.
_LEAST_SAVING = 0.01


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a program may cost; `max_cycles` of a step is `None` for any number.

    `max_ipus` are those that remedies may take, for all replicas.
    """

    max_cycles: int | None
    max_tile_bytes: int
    max_ipus: int

    def are_kept(self, model: ModelledProgram) -> bool:
        """Whether a modelled program fits and keeps them."""
        return model.memory.fits and self.excess(model) == 0

    def excess(self, model: ModelledProgram) -> float:
        """Returns how much too large its numbers are, as shares of the limits, added up."""
        limits = [(model.memory.max_tile_bytes, self.max_tile_bytes)]
        if self.max_cycles is not None:
            limits.append((model.cycles_per_step, self.max_cycles))
        return sum(max(number / most - 1, 0.0) for number, most in limits)


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A change of a program (arguments for `profile` by name), and what it costs with it."""

    changes: Mapping[str, Any]
    cycles_per_step: int
    max_tile_bytes: int
    keeps: bool

    def __str__(self) -> str:
        verdict = "within the budget" if self.keeps else "less, and still too much"
        return (
            f"{in_words(self.changes)}: {verdict}, {self.cycles_per_step:,} cycles per step, "
            f"{self.max_tile_bytes:,} bytes on the fullest tile"
        )


def remedies(
    model: ModelledProgram,
    limits: Limits,
    *,
    batch_size: int | None = None,
    with_batch: Callable[[int], ModelledProgram | None] | None = None,
) -> tuple[Remedy, ...]:
    """Models what might help a program that does not keep its limits.

    What keeps the limits comes first, and of that what takes the least time per sample.

    Args:
        batch_size: Samples of a step; `None` if it has none.
        with_batch: Models it for another batch size; `None` if it cannot be. Smaller batches are
            only tried with it.
    """
    before = limits.excess(model)
    if limits.are_kept(model):
        return ()
    found = [(changes, changed, batch_size or 1) for changes, changed in _changed(model, limits)]
    sizes = [(batch_size or 1) >> k for k in range(1, _BATCH_HALVINGS + 1)]
    for size in filter(None, sizes):
        smaller = None if with_batch is None else with_batch(size)
        if smaller is not None:
            found.append(({"batch_size": size}, smaller, size))
    helpful = [
        (not limits.are_kept(changed), changed.cycles_per_step / size, changes, changed)
        for changes, changed, size in found
        if limits.are_kept(changed) or limits.excess(changed) < before * (1 - _LEAST_SAVING)
    ]
    helpful.sort(key=lambda one: (one[0], one[1], in_words(one[2])))
    return tuple(
        Remedy(
            changes=changes,
            cycles_per_step=changed.cycles_per_step,
            max_tile_bytes=changed.memory.max_tile_bytes,
            keeps=not fails,
        )
        for fails, _, changes, changed in helpful
    )


def _changed(
    model: ModelledProgram, limits: Limits
) -> Iterator[tuple[dict[str, Any], ModelledProgram]]:
    """Yields the program with each change by itself."""
    for changes in _candidates(model, limits):
        try:
            options = replace(model.options, **changes)
            changed = model_graph(model.name, model.graph, model.target, options)
        except ValueError:
            continue  # it does not go with what else is chosen
        yield changes, changed


def _candidates(model: ModelledProgram, limits: Limits) -> Iterator[dict[str, Any]]:
    options = model.options
    if options.dtype is None and is_mostly_single(model.graph):
        yield {"dtype": "float16"}
    yield {"recomputation": not options.recomputation}
    proportion = options.available_memory_proportion
    yield from ({"available_memory_proportion": round(proportion * f, 6)} for f in (0.5, 0.25))
    if proportion < 0.9:
        yield {"available_memory_proportion": 0.9}
    if options.pipeline is None:
        steps = options.gradient_accumulation_count * _MORE_STEPS
        if options.steps_per_execution < steps:
            yield {"steps_per_execution": steps}
        ipus = options.num_ipus * 2
        while ipus * options.num_replicas <= limits.max_ipus:
            yield {"num_ipus": ipus}
            ipus *= 2

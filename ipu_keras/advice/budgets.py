"""Finds what would make a program keep limits of its own, each remedy modelled.

A budget asks for fewer cycles or a part of the memory; `fixes` are for what does not fit at all.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ipu_keras.advice.changed_programs import ChangedPrograms
from ipu_keras.advice.changes import in_words, is_mostly_single
from ipu_keras.advice.waiting import less_waiting
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.ir import Variants

# A share with which products take little more time than with all memory.
_LARGE_PROPORTION = 0.9
# Batches are halved so often; each is traced anew.
_BATCH_HALVINGS = 2
# A remedy that makes what is too much smaller by less than this share, and is still too much, is
# none: the model's own error is larger.
_LEAST_GAIN = 0.05


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
        figures = zip(self._figures(model), self._most(), strict=True)
        return model.memory.fits and all(figure <= most for figure, most in figures)

    def are_helped(self, before: ModelledProgram, after: ModelledProgram) -> bool:
        """Whether a change makes a program keep them, or what is too much clearly less."""
        if self.are_kept(after):
            return True
        figures = zip(self._figures(before), self._figures(after), self._most(), strict=True)
        too_much = [(old, new) for old, new, most in figures if max(old, new) > most]
        gains = [1 - new / old for old, new in too_much]
        return min(gains) >= 0 and max(gains) >= _LEAST_GAIN

    def _figures(self, model: ModelledProgram) -> tuple[int, ...]:
        cycles = () if self.max_cycles is None else (model.cycles_per_step,)
        return (model.memory.max_tile_bytes, *cycles)

    def _most(self) -> tuple[int, ...]:
        cycles = () if self.max_cycles is None else (self.max_cycles,)
        return (self.max_tile_bytes, *cycles)


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
    variants: Variants | None = None,
) -> tuple[Remedy, ...]:
    """Models what might help a program that does not keep its limits.

    What keeps the limits comes first, and of that what takes the least time per sample.

    Args:
        batch_size: Samples of a step; `None` if it has none.
        with_batch: Models it for another batch size; `None` if it cannot be. Smaller batches are
            only tried with it.
        variants: How else a Keras model could be written; `None` for functions.
    """
    if limits.are_kept(model):
        return ()
    search = _Tried(model, limits, variants)
    found = [(changes, changed, batch_size or 1) for changes, changed in search.changed()]
    sizes = [(batch_size or 1) >> k for k in range(1, _BATCH_HALVINGS + 1)]
    for size in filter(None, sizes):
        smaller = None if with_batch is None else with_batch(size)
        if smaller is not None:
            found.append(({"batch_size": size}, smaller, size))
    helpful = [
        (not limits.are_kept(changed), changed.cycles_per_step / size, changes, changed)
        for changes, changed, size in found
        if limits.are_helped(model, changed)
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


class _Tried:
    """Models what might help a program to keep limits."""

    def __init__(self, model: ModelledProgram, limits: Limits, variants: Variants | None):
        self._model = model
        self._limits = limits
        self._programs = ChangedPrograms(model, variants)

    def changed(self) -> Iterator[tuple[dict[str, Any], ModelledProgram]]:
        """Yields the program with each change by itself."""
        for changes in self._candidates():
            # Some do not go with what else is chosen, or with how a model is written.
            with contextlib.suppress(ValueError):
                yield changes, self._programs.with_changes(changes)
        if self._limits.max_cycles is not None:
            yield from less_waiting(self._model, _LEAST_GAIN)

    def _candidates(self) -> Iterator[dict[str, Any]]:
        options, limits = self._model.options, self._limits
        if options.dtype is None and is_mostly_single(self._model.graph):
            yield {"dtype": "float16"}
        yield {"recomputation": not options.recomputation}
        proportion = options.available_memory_proportion
        yield from ({"available_memory_proportion": round(proportion * f, 6)} for f in (0.5, 0.25))
        if proportion < _LARGE_PROPORTION:
            yield {"available_memory_proportion": _LARGE_PROPORTION}
        most = limits.max_ipus // options.num_replicas
        yield from self._programs.to_more_ipus(most)

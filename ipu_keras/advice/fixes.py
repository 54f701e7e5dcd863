"""Finds what would make a program fit that does not, each remedy modelled."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ipu_keras.advice.changed_programs import ON_MORE_IPUS, ChangedPrograms
from ipu_keras.advice.changes import OFFLOADED, Fix, is_mostly_single, is_training_step
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.passes import model_graph
from ipu_keras.ir import Graph, Variants

# How often a proportion is halved: less memory for temporaries costs more and more time.
_PROPORTION_HALVINGS = 2
# Share of the bytes that are too many: what saves less is worth a try with others, but no line.
_LEAST_SAVING = 0.1
# Share of the bytes by which remote memory has to differ: copies to it take long.
_LEAST_DIFFERENCE = 0.05
# Tracing a step takes longer than all its modelling.
_MAX_TRACES = 3


def suggest_fixes(
    model: ModelledProgram,
    *,
    batch_size: int = 1,
    trace: Callable[[int], Graph | None] | None = None,
    variants: Variants | None = None,
    is_close: Callable[[int], bool] = lambda num_bytes: False,
) -> tuple[Fix, ...]:
    """Models what might help a program that does not fit.

    Tried are float16, recomputation, halves of the proportion of memory that products may take,
    powers of two of IPUs or, in a pipeline, of stages in place of each, and halves of the batch:
    of each, the least that fits. If none fits, those that help are combined, with more and more
    IPUs; if these do not fit either, what waits in a pipeline, and what only its weight update
    reads, is put into remote memory. What fits comes first, and of that what takes the least time
    per sample. What cannot fit, as is known before it is modelled, is only tried where nothing
    else helps.

    Args:
        trace: Gives the step's graph for another batch size, or `None` if it has none for it.
            Smaller batches are only tried with it.
        variants: How else a Keras model could be written: layers have another dtype, and more
            IPUs are stages of a balanced pipeline. Other programs change all of their numbers, and
            share layers among IPUs or cut the stages that there are.
        is_close: Whether bytes of the fullest tile are too close to those it has to say if a
            program fits. What fits so closely does not end the search.
    """
    if model.memory.fits:
        return ()
    search = _Search(model, batch_size, variants, is_close)
    # Traces take longest: what needs one comes last, when it may not be needed any more.
    fixes = list(search.with_options())
    if trace is not None:
        fixes += search.with_smaller_batch(trace)
    fixes += search.on_more_ipus()
    fixes += search.in_float16(fixes)
    if not any(fix.clearly_fits for fix in fixes):
        fixes += search.combined(fixes)
    if not any(fix.clearly_fits for fix in fixes):
        fixes += search.in_remote_memory(fixes)
    worth = [fix for fix in fixes if _is_better(fix, model.memory.max_tile_bytes, model)]
    return tuple(sorted(worth, key=_rank))


def _rank(fix: Fix) -> tuple[bool, bool, float, str]:
    return not fix.clearly_fits, not fix.fits, fix.seconds_per_sample, fix.name


class _Search:
    """Looks for changes that need less memory."""

    def __init__(
        self,
        model: ModelledProgram,
        batch_size: int,
        variants: Variants | None,
        is_close: Callable[[int], bool],
    ):
        self._model = model
        self._is_close = is_close
        self._batch_size = batch_size
        self._changed = ChangedPrograms(model, variants)
        # What may help beside others, and was not modelled by itself.
        self._untried: list[Mapping[str, Any]] = []
        self._any_fits = False

    def with_options(self) -> Iterator[Fix]:
        """Yields each option by itself."""
        options = self._model.options
        if not options.recomputation:
            yield from self._least([{"recomputation": True}])
        proportion = options.available_memory_proportion
        halves = [round(proportion / 2**k, 6) for k in range(1, _PROPORTION_HALVINGS + 1)]
        yield from self._least([{"available_memory_proportion": half} for half in halves])

    def on_more_ipus(self) -> Iterator[Fix]:
        """Yields the least number of IPUs that fits."""
        yield from self._least(self._changed.to_more_ipus())

    def in_float16(self, others: Sequence[Fix]) -> Iterator[Fix]:
        """Yields float16 by itself, unless it cannot fit and is combined with others if at all."""
        if not is_mostly_single(self._model.graph):
            return
        changes = {"dtype": "float16"}
        is_combined = any("batch_size" not in fix.changes for fix in others)
        if (self._any_fits or is_combined) and self._changed.cannot_fit(changes):
            self._untried.append(changes)
        else:
            yield from self._least([changes])

    def combined(self, fixes: Sequence[Fix]) -> Iterator[Fix]:
        """Yields all options together that help alone, with more and more IPUs."""
        helpful = [fix.changes for fix in fixes if "batch_size" not in fix.changes]
        apart = [changes for changes in helpful if not ON_MORE_IPUS & changes.keys()]
        more = self._changed.to_more_ipus() if len(apart) < len(helpful) else []
        # Names begin with the type of numbers.
        apart = sorted([*apart, *self._untried], key=lambda changes: "dtype" not in changes)
        together = {name: value for changes in apart for name, value in changes.items()}
        if not together:
            return
        first = [together] if len(together) > 1 else []
        yield from self._least([*first, *({**together, **changes} for changes in more)])

    def in_remote_memory(self, fixes: Sequence[Fix]) -> Iterator[Fix]:
        """Yields the pipeline that needs the least with values in remote memory, if that helps."""
        if not is_training_step(self._model.graph):
            return
        needed, changes = self._model.memory.max_tile_bytes, dict[str, Any]()
        if fixes := [fix for fix in fixes if "batch_size" not in fix.changes]:
            best = min(fixes, key=lambda fix: fix.max_tile_bytes)
            needed, changes = best.max_tile_bytes, dict(best.changes)
        if self._model.options.pipeline is None and "pipeline_stages" not in changes:
            # Only pipelines have values there, also one whose fullest stage is as full as all.
            fewest = self._changed.to_more_ipus()[:1]
            if not fewest or "pipeline_stages" not in fewest[0]:
                return
            changes.update(fewest[0])
            alone = list(self._least([changes]))
            if any(fix.clearly_fits for fix in alone):
                yield from alone
                return
        ways = [*([name] for name in OFFLOADED), OFFLOADED]
        for fix in self._least([{**changes, **dict.fromkeys(names, True)} for names in ways]):
            if fix.clearly_fits or fix.max_tile_bytes <= (1 - _LEAST_DIFFERENCE) * needed:
                yield fix

    def with_smaller_batch(self, trace: Callable[[int], Graph | None]) -> Iterator[Fix]:
        """Yields a half, a quarter or less of the batch that fits; of some tried, the smallest."""
        memory = self._model.memory
        if not memory.code_fits:
            return  # instructions are as many for any batch
        # Bytes by batch size, as far as they are known. Before a smaller batch is modelled, all
        # but those of what is always live are taken to be proportional to the batch.
        known = [
            (0, int(memory.always_live_by_tile.max())),
            (self._batch_size, memory.max_tile_bytes),
        ]
        best: Fix | None = None
        for _ in range(_MAX_TRACES):
            promising = self._promising_batch(*known[-2:])
            graph = None if promising is None else trace(promising)
            if promising is None or graph is None:
                break
            model = self._model
            smaller = model_graph(model.name, graph, model.target, model.options)
            best = self._fix({"batch_size": promising}, smaller, promising)
            self._any_fits |= best.clearly_fits
            if best.clearly_fits or not smaller.memory.code_fits:
                break
            known.append((promising, best.max_tile_bytes))
        if best is not None and best.max_tile_bytes < memory.max_tile_bytes:
            yield best

    def _promising_batch(self, one: tuple[int, int], last: tuple[int, int]) -> int | None:
        """Returns the largest half, quarter or so of the last batch that may fit; `None` if none.

        What a tile needs at its fullest time is the most of several sums that grow with the
        batch, so smaller batches need at least what the line through two sizes gives them.
        """
        (size, needed), slope = last, (last[1] - one[1]) / (last[0] - one[0])
        halves = [size >> k for k in range(1, size.bit_length())]
        limit = self._model.memory.tile_bytes
        return next((b for b in halves if needed + (b - size) * slope <= limit), None)

    def _least(self, candidates: Sequence[Mapping[str, Any]]) -> Iterator[Fix]:
        """Yields the first of some changes, each going further, that fits; else what helps most."""
        best: Fix | None = None
        for k, changes in enumerate(candidates):
            try:
                # If nothing fits, the last one is modelled in any case, as it gets nearest.
                is_needed = k + 1 == len(candidates) and not self._any_fits
                if not is_needed and self._changed.cannot_fit(changes):
                    continue
                changed = self._changed.with_changes(changes)
            except ValueError:
                break  # a stage has no more layers to be cut between
            fix = self._fix(changes, changed, self._batch_size)
            if fix.clearly_fits:
                self._any_fits = True
                yield fix
                return
            if best is None or (
                not best.fits and _is_better(fix, best.max_tile_bytes, self._model)
            ):
                best = fix
            # A step further would lead no nearer.
            if self._changed.is_finest(changes) or (
                fix.max_tile_bytes >= self._model.memory.max_tile_bytes
                and not ON_MORE_IPUS & changes.keys()
            ):
                break
        if best is not None and best.max_tile_bytes < self._model.memory.max_tile_bytes:
            yield best

    def _fix(self, changes: Mapping[str, Any], model: ModelledProgram, batch_size: int) -> Fix:
        seconds = model.cycles_per_step / model.target.clock_hz
        return Fix(
            changes=dict(changes),
            max_tile_bytes=model.memory.max_tile_bytes,
            fits=model.memory.fits,
            excess_code_bytes=max(model.memory.code_bytes - model.memory.code_region_bytes, 0),
            seconds_per_sample=seconds / batch_size,
            is_close=self._is_close(model.memory.max_tile_bytes),
        )


def _is_better(fix: Fix, needed: int, model: ModelledProgram) -> bool:
    """Whether a fix makes the model fit, or is clearly nearer to that than the bytes needed."""
    excess = needed - model.memory.tile_bytes
    return fix.fits or fix.max_tile_bytes <= needed - _LEAST_SAVING * excess

"""Finds values that are others seen in another way, which no vertex copies.

In Poplar, a tensor is a list of places in memory: its transposition, a slice, several behind each
other and a border of zeros are lists of the same places. TensorFlow for IPUs hands such views to
whoever reads them; a copy is made where somebody needs a tensor of its own.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, is_carry
from ipu_keras.cost.flat.recurrent_steps import RECURRENT

# Operations whose result is a view. A reversal is not: what is reversed are weights, which
# ConvBwdInputToFwdWeightsTranspose copies once for all that take them.
_VIEWS = frozenset({"concatenate", "pad", "slice", "transpose"})

# Who takes elements wherever they are: plans of products bring their inputs together anyway, and
# so do copies; vertices on elements get what lies elsewhere by exchange.
_TAKES_VIEWS = RECURRENT | {"cast", "convolution", "copy", "dot", "elementwise", "transpose"}


def with_views(program: FlatProgram) -> FlatProgram:
    """Lets compute sets read what is behind a view, where nobody needs the view itself.

    All readers have to take elements wherever they are, and to run as often. In another part of
    a pipeline they may read no slice, if that kept more there than the slice has.
    """
    views = _Views(program).found()
    sources: dict[str, tuple[str, ...]] = {}
    compute_sets = []
    for one in program.compute_sets:
        one = _with_sources(one, sources)
        if one.writes and one.writes[0].name in views:
            sources[one.writes[0].name] = one.reads
        else:
            compute_sets.append(one)
    values = {name: value for name, value in program.values.items() if name not in views}
    return replace(program, compute_sets=tuple(compute_sets), values=values)


class _Views:
    """Finds the results of a program that need no memory."""

    def __init__(self, program: FlatProgram) -> None:
        self._program = program
        self._needed = {*program.results, *program.checkpoints, *program.in_place.values()}
        self._readers: defaultdict[str, list[ComputeSet]] = defaultdict(list)
        for one in program.compute_sets:
            for name in one.reads:
                self._readers[name].append(one)

    def found(self) -> frozenset[str]:
        candidates = {
            one.writes[0].name: one
            for one in self._program.compute_sets
            if one.ops[-1].kind in _VIEWS and len(one.writes) == 1 and self._is_taken(one)
        }
        crossing = self._crossing(candidates)
        # A part of a value keeps all of it. Where other parts are needed as well, that is no more.
        kept: Counter[str] = Counter()
        for name in crossing:
            kept[candidates[name].reads[0]] += candidates[name].writes[0].spec.nbytes
        return frozenset(
            name
            for name, one in candidates.items()
            if one.ops[-1].kind != "slice"
            or name not in crossing
            or kept[one.reads[0]] >= one.operands[0].nbytes
        )

    def _is_taken(self, view: ComputeSet) -> bool:
        (value,) = view.writes
        readers = self._readers[value.name]
        return (
            value.name not in self._needed
            and bool(readers)
            and all(_takes(reader, view) for reader in readers)
        )

    def _crossing(self, views: Mapping[str, ComputeSet]) -> frozenset[str]:
        """Returns the names of views that somebody in another part of a pipeline reads."""
        parts: dict[str, set[tuple]] = {}  # of those that read a view, or a view of it
        for name, one in reversed(list(views.items())):
            parts[name] = {one.part}
            for reader in self._readers[name]:
                through = reader.writes[0].name if reader.writes else ""
                parts[name] |= parts[through] if through in views else {reader.part}
        return frozenset(name for name, found in parts.items() if len(found) > 1)


def _takes(reader: ComputeSet, view: ComputeSet) -> bool:
    is_reduced = reader.family == "reduce" and view.writes[0].name not in reader.reads[1:]
    return (
        (is_reduced or (reader.family in _TAKES_VIEWS and not is_carry(reader)))
        # popnn's operations are given weights as parts of one matrix, which lies as they want it.
        and (reader.body is None or reader.family in RECURRENT)
        and _place(reader) == _place(view)
    )


def _place(one: ComputeSet) -> tuple:
    # What is behind a view would have an accumulator, if the weight update took the view.
    return one.repeat, one.weight_update, one.shard, one.branches


def _with_sources(one: ComputeSet, sources: Mapping[str, Sequence[str]]) -> ComputeSet:
    if sources.keys().isdisjoint(one.reads):
        return one
    # A value may be read as it is and as a view, and as several views.
    pairs = dict.fromkeys(
        (source, name in sources) for name in one.reads for source in sources.get(name, (name,))
    )
    return replace(
        one,
        reads=tuple(name for name, _ in pairs),
        views=tuple(k for k, (_, is_view) in enumerate(pairs) if is_view),
    )

"""Finds values that are others seen in another way, which no vertex copies.

In Poplar, a tensor is a list of places in memory: its transposition, a slice, several behind each
other and a border of zeros are lists of the same places. TensorFlow for IPUs hands such views to
whoever reads them; a copy is made where somebody needs a tensor of its own.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, is_carry

# Operations whose result is a view. A reversal is not: what is reversed are weights, which
# ConvBwdInputToFwdWeightsTranspose copies once for all that take them.
_VIEWS = frozenset({"concatenate", "pad", "slice", "transpose"})

# Who takes elements wherever they are: plans of products bring their inputs together anyway, and
# so do copies; vertices on elements get what lies elsewhere by exchange.
_TAKES_VIEWS = frozenset({"cast", "convolution", "copy", "dot", "elementwise", "transpose"})


def with_views(program: FlatProgram) -> FlatProgram:
    """Lets compute sets read what is behind a view, where nobody needs the view itself.

    All readers have to take elements wherever they are, and to run as often and in the same part
    of a pipeline, as a view has no memory that could be kept for another one.
    """
    views = _views(program)
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


def _views(program: FlatProgram) -> frozenset[str]:
    """Returns the names of results that need no memory."""
    needed = {*program.results, *program.checkpoints, *program.in_place.values()}
    readers: defaultdict[str, list[ComputeSet]] = defaultdict(list)
    for one in program.compute_sets:
        for name in one.reads:
            readers[name].append(one)
    return frozenset(
        one.writes[0].name
        for one in program.compute_sets
        if one.ops[-1].kind in _VIEWS
        and len(one.writes) == 1
        and one.writes[0].name not in needed
        and readers[one.writes[0].name]
        and all(_takes(reader, one) for reader in readers[one.writes[0].name])
    )


def _takes(reader: ComputeSet, view: ComputeSet) -> bool:
    is_reduced = reader.family == "reduce" and view.writes[0].name not in reader.reads[1:]
    return (
        (is_reduced or (reader.family in _TAKES_VIEWS and not is_carry(reader)))
        and reader.body is None
        and (reader.repeat, reader.part, reader.shard) == (view.repeat, view.part, view.shard)
        and reader.branches == view.branches
    )


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

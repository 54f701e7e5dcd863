"""Puts a program on several IPUs: which layer is on which, and the copies between them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, Value
from ipu_keras.cost.flat.control_flow import is_in_loop, outermost_loop
from ipu_keras.cost.flat.layer_order import LayerOrder, crossing_bytes, layer_order
from ipu_keras.cost.pipeline.scoped_shards import Parts, has_shards, parts_of_shards
from ipu_keras.ir import Op

COPY_FAMILY = "inter-IPU copy"

# Stages may be fuller by this share than those of the most even cut, if less crosses then:
# the layers' own compute sets take as long wherever they are.
_SLACK = 0.1


def shard(program: FlatProgram, num_ipus: int) -> FlatProgram:
    """Puts each layer with its variables and its gradient on one of several IPUs.

    Where scopes of shards say which, all is as they say. Else the forward pass is cut into
    stages that follow each other, so that the fullest has the fewest bytes of variables and of
    activations for the gradient, and within that, so that few bytes cross. No IPU stays empty
    that there is a layer for. Optimizers work where the gradients are. Values that another IPU
    needs are copied over the links, once; constants are on every IPU that reads them.

    This is model parallelism without pipelining: one IPU computes at a time, so that a step
    takes as long as on one IPU, and the copies besides.
    """
    if num_ipus == 1:
        return program
    cut = parts_of_shards(program) if has_shards(program) else cut_evenly(program, num_ipus)
    return _with_copies(program, cut.by_position, cut.by_value)


def cut_evenly(program: FlatProgram, num_parts: int) -> Parts:
    """Cuts the forward pass between layers; gradients are where their layers are."""
    order = layer_order(program)
    layers = _layers_of(program, order)
    sizes = _bytes_by_layer(program, order, layers)
    crossing = [*crossing_bytes(program, order), 0]
    # Layers whose only operations are with another layer's variables are none.
    real = sorted({*layers.by_position, *layers.by_value.values()})
    cut = _stages([sizes[k] for k in real], [crossing[k] for k in real], num_parts)
    parts = dict(zip(real, cut, strict=True))
    return Parts(
        [parts[layer] for layer in layers.by_position],
        {name: parts[layer] for name, layer in layers.by_value.items()},
    )


def _layers_of(program: FlatProgram, order: LayerOrder) -> Parts:
    """Puts the gradient into its layer; what no layer has, into that of its largest operand."""
    by_value: dict[str, int] = {}
    by_loop: dict[str | None, int] = {}
    by_position: list[int] = []
    sizes = {name: value.spec.nbytes for name, value in program.values.items()}
    constants = {name for name, value in program.values.items() if value.role == "constant"}
    for position, one in enumerate(program.compute_sets):
        layer = order.layer_of(one) if order.forward[position] or one.backward else None
        known = [name for name in one.reads if name in by_value and name not in constants]
        updated = [program.updates.get(value.name) for value in one.writes]
        owners = [by_value[name] for name in updated if name in by_value]
        if owners:
            layer = owners[0]
        elif layer is None:
            layer = by_value[max(known, key=sizes.__getitem__)] if known else 0
        # A loop's operations that no layer has, such as its condition, are one layer.
        elif not one.layer and is_in_loop(one):
            layer = by_loop.setdefault(outermost_loop(one), layer)
        by_position.append(layer)
        for name in (*one.reads, *(value.name for value in one.writes)):
            by_value.setdefault(name, layer)
    for name in program.values:
        by_value.setdefault(name, min(by_position, default=0))  # nobody reads it
    return Parts(by_position, by_value)


def _bytes_by_layer(program: FlatProgram, order: LayerOrder, layers: Parts) -> list[int]:
    """Returns the bytes of each layer's variables, and of what it keeps for the gradient."""
    sizes = [0] * max(order.num_layers, 1)
    for name, layer in layers.by_value.items():
        if program.values[name].role == "variable":
            sizes[layer] += program.values[name].spec.nbytes
    waiting: set[str] = set()
    for position, one in enumerate(program.compute_sets):
        if position < len(order.forward) and order.forward[position]:
            waiting.update(value.name for value in one.writes)
            continue
        for name in waiting.intersection(one.reads):
            waiting.remove(name)
            sizes[layers.by_value[name]] += program.values[name].spec.nbytes
    return sizes


def _stages(sizes: Sequence[int], crossing: Sequence[int], num_ipus: int) -> list[int]:
    """Returns the IPU of each layer; `crossing` has the bytes over the boundary behind each."""
    count = min(num_ipus, len(sizes))
    if count == 0:
        return []
    capacity = int(_smallest_capacity(sizes, count) * (1 + _SLACK))
    earliest = _earliest_ends(sizes, capacity, count)
    stages: list[int] = []
    rest = sum(sizes)
    for ipu in range(count):
        first, left = len(stages), count - ipu
        total, cuts = 0, []
        for end in range(first + 1, len(sizes) - left + 2):  # the others have a layer each
            total += sizes[end - 1]
            if total > capacity:
                break
            if end >= earliest[ipu]:
                # Of equal cuts, that nearest to an even share of the rest; then the last.
                cuts.append((crossing[end - 1], abs(total * left - rest), -end))
        end = -min(cuts)[2]
        rest -= sum(sizes[first:end])
        stages += [ipu] * (end - first)
    return stages


def _smallest_capacity(sizes: Sequence[int], num_stages: int) -> int:
    """Returns the bytes of the fullest stage, if they are as even as the order of layers allows."""
    low, high = max(sizes), sum(sizes)
    while low < high:
        middle = (low + high) // 2
        if _num_stages(sizes, middle) <= num_stages:
            high = middle
        else:
            low = middle + 1
    return low


def _num_stages(sizes: Sequence[int], capacity: int) -> int:
    count, total = 1, 0
    for size in sizes:
        if total + size > capacity:
            count, total = count + 1, 0
        total += size
    return count


def _earliest_ends(sizes: Sequence[int], capacity: int, num_stages: int) -> list[int]:
    """Returns, for each stage, before which layer it may end so that the others hold the rest."""
    ends = [len(sizes)]
    total = 0
    for layer in range(len(sizes) - 1, -1, -1):
        if total + sizes[layer] > capacity:
            ends.append(layer + 1)
            total = 0
        total += sizes[layer]
    ends += [0] * (num_stages - len(ends))
    return ends[::-1]


def _with_copies(
    program: FlatProgram, ipus: Sequence[int], homes: Mapping[str, int]
) -> FlatProgram:
    """Adds a copy before the first use on each IPU that lacks a value."""
    values = {name: replace(v, ipu=homes[name]) for name, v in program.values.items()}
    makers = {value.name: one for one in program.compute_sets for value in one.writes}
    compute_sets: list[ComputeSet] = []
    for one, ipu in zip(program.compute_sets, ipus, strict=True):
        reads = []
        for name in one.reads:
            here = name
            if homes[name] != ipu:
                here, source = f"{name}@ipu{ipu}", values[name]
                if here not in values and source.role == "constant":
                    values[here] = replace(source, name=here, ipu=ipu, copy_of=name)
                elif here not in values:
                    values[here] = Value(here, source.spec, ipu=ipu, copy_of=name)
                    compute_sets.append(_copy(source, values[here], one, makers))
            reads.append(here)
        writes = tuple(values[value.name] for value in one.writes)
        compute_sets.append(replace(one, reads=tuple(reads), writes=writes, ipu=ipu))
    return replace(program, compute_sets=tuple(compute_sets), values=values)


def _copy(
    source: Value, copied: Value, reader: ComputeSet, makers: Mapping[str, ComputeSet]
) -> ComputeSet:
    maker = makers.get(source.name)
    together = maker is not None and outermost_loop(maker) == outermost_loop(reader)
    # What a branch takes is copied before it is known which one runs.
    runs = [one.repeat for one in (maker, reader) if one is not None and one.repeat]
    return ComputeSet(
        name=copied.name,
        family=COPY_FAMILY,
        ops=(Op(copied.name, "inter-ipu-copy", (source.spec,), inputs=(source.name,)),),
        operands=(source.spec,),
        reads=(source.name,),
        writes=(copied,),
        # What a loop leaves behind, and what it takes from outside, is copied once.
        repeat=min(runs, default=0) if together else 1,
        loops=() if maker is None else maker.loops,
        branches=() if maker is None else maker.branches,
        layer=reader.layer,
        backward=reader.backward,
        ipu=copied.ipu,
        bytes_read=source.spec.nbytes,
        bytes_written=source.spec.nbytes,
    )

"""Adds up gradients of several batches and replicas on their way to one weight update."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, Value
from ipu_keras.cost.flat.control_flow import outermost_loop
from ipu_keras.ir import Op, TensorSpec, num_elements

_FLOATS = frozenset({"bfloat16", "float16", "float32", "float64"})


def accumulate(
    program: FlatProgram, *, dtype: str | None = None, ipu_of_stage: Sequence[int] = ()
) -> FlatProgram:
    """Adds up, batch after batch, the gradients that the weight update reads.

    Each has an accumulator in memory all the time (of type `dtype`, or the gradient's), to which
    a batch's gradient is added as soon as it is there, and which is set to zero after the weight
    update. Whole numbers, which are no gradients, reach the update from the last batch.
    """
    gradients = _gradients(program)
    # A variable that several stages of one IPU read has a gradient of each, which TensorFlow's
    # tape adds up in the last of these stages. Each is added to the accumulator in its own stage
    # instead: otherwise it would wait in a stash, once for each batch that is under way. So do
    # the passes of the compiler for IPUs (`PipelineGradientAccumulationOptimizer`); stages that
    # share variables have to be on the same IPU for it (`device_mapping` in the API of
    # TensorFlow for IPUs).
    summed = _summed_over_stages(program, gradients, ipu_of_stage)
    makers = {value.name: one for one in program.compute_sets for value in one.writes}
    values, updates = dict(program.values), dict(program.updates)
    names: dict[str, str] = {}
    additions: dict[str, ComputeSet] = {}
    zeros: list[ComputeSet] = []
    for name, maker in gradients.items():
        spec = replace(values[name].spec, dtype=dtype or values[name].spec.dtype)
        accumulator = Value(f"{name}/accumulator", spec, "variable", is_accumulator=True)
        zero = Value(f"{spec.dtype}(0.0)", TensorSpec((), spec.dtype), "constant")
        values.setdefault(zero.name, zero)
        parts = summed.get(name, (name,))
        for part in parts:
            additions[part] = _addition(values[part], accumulator, makers[part])
        zeros.append(_zero(zero, accumulator, maker))
        made = [*(additions[part].writes[0] for part in parts), zeros[-1].writes[0]]
        values.update((value.name, value) for value in (accumulator, *made))
        updates.update((value.name, accumulator.name) for value in made)
        names[name] = accumulator.name
    sums = {makers[name].name for name in summed}
    sets = [one for one in _after_makers(program, additions) if one.name not in sums]
    return replace(
        program,
        compute_sets=(*(_reading(one, names) for one in sets), *zeros),
        values={name: value for name, value in values.items() if name not in summed},
        updates=updates,
    )


def reduce_over_replicas(program: FlatProgram, num_replicas: int) -> FlatProgram:
    """Adds up the gradients of all replicas before the weight update, if the trace does not."""
    in_update = [one for one in program.compute_sets if one.weight_update]
    if num_replicas == 1 or any(one.family == "collective" for one in in_update):
        return program
    values = dict(program.values)
    names: dict[str, str] = {}
    sums = []
    for name, maker in _gradients(program).items():
        sums.append(_sum_of_replicas(values[name], maker, num_replicas))
        (reduced,) = sums[-1].writes
        values[reduced.name] = reduced
        names[name] = reduced.name
    before = [one for one in program.compute_sets if not one.weight_update]
    after = [_reading(one, names) for one in in_update]
    return replace(program, compute_sets=(*before, *sums, *after), values=values)


def _gradients(program: FlatProgram) -> dict[str, ComputeSet]:
    """Returns what the weight update takes from the batches, with who makes it."""
    makers = {v.name: one for one in program.compute_sets for v in one.writes}
    return {
        name: makers[name]
        for one in program.compute_sets
        if one.weight_update
        for name in one.reads
        if name in makers
        and not makers[name].weight_update
        and program.values[name].spec.dtype in _FLOATS
    }


def _summed_over_stages(
    program: FlatProgram, gradients: Mapping[str, ComputeSet], ipu_of_stage: Sequence[int]
) -> dict[str, tuple[str, ...]]:
    """Returns sums that only the update reads, of gradients of several stages on one IPU."""
    if not ipu_of_stage:
        return {}
    makers = {value.name: one for one in program.compute_sets for value in one.writes}
    batches = [one for one in program.compute_sets if not one.weight_update]
    read = {*program.results, *(name for one in batches for name in one.reads)}

    def is_sum_over_stages(name: str, maker: ComputeSet) -> bool:
        if name in read or maker.loops or maker.branches:
            return False
        if any(each not in makers or each in gradients for each in maker.reads):
            return False
        stages = {makers[each].stage for each in maker.reads}
        ipus = {ipu_of_stage[stage] for stage in stages if stage is not None}
        return {op.kind for op in maker.ops} == {"add"} and len(stages) > len(ipus) == 1

    return {
        name: maker.reads for name, maker in gradients.items() if is_sum_over_stages(name, maker)
    }


def _after_makers(program: FlatProgram, additions: dict[str, ComputeSet]) -> Iterator[ComputeSet]:
    """Yields each addition behind the operation, or the loop, that makes its gradient."""
    sets = program.compute_sets
    waiting: list[ComputeSet] = []
    for position, one in enumerate(sets):
        yield one
        waiting += [additions[v.name] for v in one.writes if v.name in additions]
        loop = outermost_loop(one)
        following = outermost_loop(sets[position + 1]) if position + 1 < len(sets) else None
        # A loop runs as a whole, so its gradients are added behind it.
        if loop is None or following != loop:
            yield from waiting
            waiting = []


def _reading(one: ComputeSet, names: dict[str, str]) -> ComputeSet:
    if not one.weight_update or names.keys().isdisjoint(one.reads):
        return one
    return replace(one, reads=tuple(names.get(name, name) for name in one.reads))


def _addition(gradient: Value, accumulator: Value, maker: ComputeSet) -> ComputeSet:
    # In the part of the gradient, so that the gradient's memory is free at once.
    name, spec = f"{gradient.name}/accumulate", accumulator.spec
    converted = Op(f"{name}/convert", "convert", (spec,), inputs=(gradient.name,))
    add = Op(name, "add", (spec,), inputs=(accumulator.name, gradient.name))
    return ComputeSet(
        name=name,
        family="elementwise",
        ops=(add,) if spec.dtype == gradient.spec.dtype else (converted, add),
        operands=(spec, spec),
        reads=(accumulator.name, gradient.name),
        writes=(Value(name, spec),),
        loops=maker.loops,
        branches=maker.branches,
        layer=maker.layer,
        backward=maker.backward,
        stage=maker.stage,
        flops=num_elements(spec),
        bytes_read=spec.nbytes + gradient.spec.nbytes,
        bytes_written=spec.nbytes,
    )


def _zero(zero: Value, accumulator: Value, maker: ComputeSet) -> ComputeSet:
    name, spec = f"{accumulator.name}/zero", accumulator.spec
    return ComputeSet(
        name=name,
        family="broadcast",
        ops=(Op(name, "broadcast", (spec,), inputs=(zero.name,)),),
        operands=(zero.spec,),
        reads=(zero.name,),
        writes=(Value(name, spec),),
        loops=maker.loops,
        branches=maker.branches,
        layer=maker.layer,
        backward=maker.backward,
        weight_update=True,
        bytes_read=zero.spec.nbytes,
        bytes_written=spec.nbytes,
    )


def _sum_of_replicas(gradient: Value, maker: ComputeSet, num_replicas: int) -> ComputeSet:
    # Once for each weight update, as replicas accumulate by themselves until then.
    name, spec = f"{gradient.name}/reduced", gradient.spec
    attributes = {"num_replicas": num_replicas}
    return ComputeSet(
        name=name,
        family="collective",
        ops=(Op(name, "all-reduce", (spec,), inputs=(gradient.name,), attributes=attributes),),
        operands=(spec,),
        reads=(gradient.name,),
        writes=(Value(name, spec),),
        loops=maker.loops,
        branches=maker.branches,
        layer=maker.layer,
        backward=maker.backward,
        weight_update=True,
        # Each replica adds up its share of the tensor, and gets the other sums from the others.
        flops=math.ceil(num_elements(spec) * (num_replicas - 1) / num_replicas),
        bytes_read=spec.nbytes,
        bytes_written=spec.nbytes,
    )

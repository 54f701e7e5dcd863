"""Collectives that wait for each other, in programs built by hand."""

from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, op, spec, staged_step, training_step, variable
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram, LoopPart, Value
from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.pipeline.merged_collectives import merge_collectives
from ipu_keras.cost.pipeline.step_parts import attribute_parts
from ipu_keras.cost.tile.exchange import Members, all_reduce_seconds, reduce_scatter_seconds
from ipu_keras.machine.target import TARGETS, Confidence
from ipu_keras.program import Pipeline

GC200 = TARGETS["gc200"]
TENSOR = 4 * 64 * 64
ANY = 10**9


def program(*ops):
    return attribute_parts(flatten(graph(*ops)))


def gradient_sum(name, *shape, of="x", kind="all-reduce", **attributes):
    return op(name, kind, shape, of, **{"num_replicas": 4, "operation": "add", **attributes})


def merged(before, sums=ANY, scattered=0):
    found = merge_collectives(before, {"all-reduce": sums, "reduce-scatter": scattered})
    return [(one.name, one.reads) for one in found.compute_sets]


def names(before, **sizes):
    return [name for name, _ in merged(before, **sizes)]


# x ─ s0 ─ y0;  x ─ s1 ─ y1;  y0, y1 ─ z, in the order in which an update follows its sum
TWO = (
    argument("x", 8),
    gradient_sum("s0", 8),
    op("y0", "negate", (8,), "s0"),
    gradient_sum("s1", 8),
    op("y1", "tanh", (8,), "s1"),
    op("z", "add", (8,), "y0", "y1"),
)


def test_one_for_all_and_what_needs_it_behind():
    assert merged(program(*TWO)) == [
        ("s0/and 1 more", ("x",)),
        ("y0", ("s0",)),
        ("y1", ("s1",)),
        ("z", ("y0", "y1")),
    ]


def test_it_does_what_its_members_did():
    before = program(*TWO)
    one = merge_collectives(before, {"all-reduce": ANY}).compute_sets[0]
    first, second = before.compute_sets[0], before.compute_sets[2]
    assert one.ops[0].outputs == one.operands == (spec(8), spec(8))
    assert one.ops[0].inputs == ("x", "x")
    assert one.ops[0].attributes == first.ops[0].attributes
    assert one.writes == (*first.writes, *second.writes)
    assert (one.flops, one.bytes_read) == (2 * first.flops, 2 * first.bytes_read)


@pytest.mark.parametrize("sums", [0, 63])
def test_no_more_bytes_wait_than_may(sums):
    """Both are 64 bytes, and one that is larger than the buffer does not wait at all."""
    before = program(*TWO)
    assert merge_collectives(before, {"all-reduce": sums, "reduce-scatter": 0}).compute_sets == (
        before.compute_sets
    )


def test_a_full_buffer_is_summed_and_the_next_begins():
    sums = [gradient_sum(f"s{k}", 8) for k in range(5)]
    assert names(program(argument("x", 8), *sums), sums=64) == [
        "s0/and 1 more",
        "s2/and 1 more",
        "s4",
    ]


def test_sums_of_sums_do_not_wait_for_each_other():
    ops = (argument("x", 8), gradient_sum("s0", 8), op("y", "negate", (8,), "s0"))
    found = merged(program(*ops, gradient_sum("s1", 8, of="y"), gradient_sum("s2", 8)))
    assert found == [("s0", ("x",)), ("y", ("s0",)), ("s1/and 1 more", ("y", "x"))]


@pytest.mark.parametrize(
    "other",
    [
        {"num_replicas": 2},
        {"operation": "maximum"},
        {"dtype": "float16"},
        {"kind": "reduce-scatter"},
        {"kind": "all-gather"},
    ],
)
def test_others_are_apart(other):
    before = program(argument("x", 8), gradient_sum("s0", 8), gradient_sum("s1", 8, **other))
    if "dtype" in other:
        first, second = before.compute_sets
        halves = tuple(replace(one, dtype="float16") for one in second.operands)
        before = replace(before, compute_sets=(first, replace(second, operands=halves)))
    # What does not wait for anything runs first.
    assert sorted(names(before)) == ["s0", "s1"]


def test_two_kinds_wait_side_by_side():
    """As gradients of two dtypes do that come by turns."""
    sums = [gradient_sum(f"s{k}", 8, num_replicas=2 + k % 2) for k in range(4)]
    assert names(program(argument("x", 8), *sums)) == ["s0/and 1 more", "s1/and 1 more"]


def test_reduce_scatters_have_a_limit_of_their_own():
    sums = [gradient_sum(f"s{k}", 2, kind="reduce-scatter", dimensions=(0,)) for k in range(2)]
    before = program(argument("x", 8), *sums)
    assert names(before, scattered=64) == ["s0/and 1 more"]
    assert names(before, scattered=32) == names(before, scattered=0) == ["s0", "s1"]


def test_loops_stay_together():
    before = program(*TWO)
    loops = (LoopPart("loop"),)
    sets = [replace(one, loops=loops) if one.name[0] == "y" else one for one in before.compute_sets]
    assert names(replace(before, compute_sets=tuple(sets))) == ["s0", "y0", "s1", "y1", "z"]
    sets = [replace(one, loops=loops) if one.name[0] == "s" else one for one in before.compute_sets]
    assert names(replace(before, compute_sets=tuple(sets))) == ["s0", "y0", "s1", "y1", "z"]


def test_nothing_waits_beyond_its_part_or_for_another_ipu():
    sums = [replace(gradient_sum(f"s{k}", 8), weight_update=k > 1) for k in range(4)]
    whole = program(argument("x", 8), *sums)
    assert names(whole) == ["s0/and 1 more", "s2/and 1 more"]
    sets = [replace(one, ipu=k % 2) for k, one in enumerate(whole.compute_sets)]
    assert names(replace(whole, compute_sets=tuple(sets))) == ["s0", "s1", "s2", "s3"]


@st.composite
def programs(draw):
    """Compute sets that each read some of those before; about half are collectives."""
    values = {"x": Value("x", spec(8), "argument")}
    sets = []
    for k in range(draw(st.integers(1, 12))):
        known = st.sampled_from(sorted(values))
        reads = tuple(draw(st.lists(known, min_size=1, max_size=3, unique=True)))
        replicas = draw(st.sampled_from([0, 0, 2, 4]))
        kind, reads = ("all-reduce", reads[:1]) if replicas else ("add", reads)
        family = "collective" if replicas else "elementwise"
        made = Value(f"v{k}", spec(8))
        values[made.name] = made
        one = op(made.name, kind, (8,), *reads, num_replicas=replicas)
        sets.append(
            ComputeSet(
                name=made.name,
                family=family,
                ops=(one,),
                operands=tuple(values[name].spec for name in reads),
                reads=reads,
                writes=(made,),
                ipu=draw(st.sampled_from([0, 0, 1])),
            )
        )
    return FlatProgram(compute_sets=tuple(sets), values=values)


@given(programs(), st.integers(0, 200))
def test_each_follows_what_it_reads_and_nothing_is_lost(before, limit):
    after = merge_collectives(before, {"all-reduce": limit})
    known = {"x"}
    for one in after.compute_sets:
        assert known.issuperset(one.reads), f"{one.name} reads what is not there"
        known.update(value.name for value in one.writes)
        size = sum(operand.nbytes for operand in one.operands)
        assert len(one.writes) == 1 or size <= limit
    assert known == set(before.values)
    assert len(after.compute_sets) <= len(before.compute_sets)


def step_of(layers, **options):
    whole = training_step(layers)
    ops = (replace(o, weight_update=True) if o.name[0] == "u" else o for o in whole.ops)
    return model_graph("step", replace(whole, ops=tuple(ops)), GC200, CostOptions(**options))


def collectives(model):
    pairs = zip(model.program.compute_sets, model.costs, strict=True)
    return {one.name: cost for one, cost in pairs if one.family == "collective"}


def test_sixteen_variables_take_the_time_of_one_of_their_size():
    apart = step_of(16, num_replicas=64)
    together = step_of(16, num_replicas=64, maximum_cross_replica_sum_buffer_size=ANY)
    ((name, cost),) = collectives(together).items()
    assert name == "dw0/reduced/and 15 more"
    assert cost.detail == "64 replicas, 16 tensors"
    seconds = all_reduce_seconds(GC200, 16 * TENSOR, Members(64, 64))
    assert cost.cycles == pytest.approx(seconds * GC200.clock_hz, abs=1)
    each = [one.cycles for one in collectives(apart).values()]
    assert len(each) == 16
    assert cost.cycles < sum(each) / 2
    assert together.compute_cycles < apart.compute_cycles


def test_each_of_them_waits_for_the_gateways_between_racks():
    (within,) = collectives(
        step_of(16, num_replicas=64, maximum_cross_replica_sum_buffer_size=ANY)
    ).values()
    (cost,) = collectives(
        step_of(16, num_replicas=256, maximum_cross_replica_sum_buffer_size=ANY)
    ).values()
    assert cost.detail == "256 replicas in 4 racks, 16 tensors"
    assert (within.confidence, cost.confidence) == (Confidence.DERIVED, Confidence.GUESSED)
    seconds = all_reduce_seconds(GC200, 16 * TENSOR, Members(256, 64), num_tensors=16)
    assert cost.cycles == pytest.approx(seconds * GC200.clock_hz, abs=1)
    # 16 latencies of 9.3 us in each of two stages.
    assert cost.cycles - within.cycles > 2 * 16 * 9.3e-6 * 1.33e9


def test_their_memory_is_needed_at_the_same_time():
    """Gradients are summed one by one, or all while the sums of all are made."""
    apart = step_of(8, num_replicas=2)
    together = step_of(8, num_replicas=2, maximum_cross_replica_sum_buffer_size=ANY)

    def while_summed(model):
        sets = model.program.compute_sets
        positions = [k for k, one in enumerate(sets) if one.family == "collective"]
        return [int(model.memory.live_by_position[k]) for k in positions]

    (at_once,) = while_summed(together)
    assert at_once >= 2 * 8 * TENSOR
    assert max(while_summed(apart)) < at_once
    names = [one.name for one in together.program.compute_sets]
    assert names.index("u7") > names.index("dw0/reduced/and 7 more")


def test_stages_of_a_pipeline_sum_on_their_own_ipus():
    options = {
        "gradient_accumulation_count": 4,
        "steps_per_execution": 4,
        "num_replicas": 64,  # of two IPUs, 32 in a rack
        "pipeline": Pipeline(device_mapping=(0, 1)),
        "maximum_cross_replica_sum_buffer_size": ANY,
    }
    found = model_graph("step", staged_step(4, stages=[0, 0, 1, 1]), GC200, CostOptions(**options))
    sums = [one for one in found.program.compute_sets if one.family == "collective"]
    assert sorted(one.ipu for one in sums) == [0, 1]
    assert [len(one.writes) for one in sums] == [2, 2]
    assert all(one.weight_update for one in sums)
    seconds = all_reduce_seconds(GC200, 2 * TENSOR, Members(64, 32), num_tensors=2)
    for cost in collectives(found).values():
        assert cost.detail == "64 replicas in 2 racks, 2 tensors"
        assert cost.cycles == pytest.approx(seconds * GC200.clock_hz, abs=1)


def test_reduce_scatters_of_a_step():
    sums = [gradient_sum(f"s{k}", 16, kind="reduce-scatter", dimensions=(0,)) for k in range(2)]
    whole = graph(variable("x", 64), *sums, results=("s0", "s1"))
    options = CostOptions(num_replicas=4, maximum_reduce_scatter_buffer_size=ANY)
    (cost,) = collectives(model_graph("step", whole, GC200, options)).values()
    seconds = reduce_scatter_seconds(GC200, 2 * 4 * 64, Members(4, 4))
    assert cost.cycles == pytest.approx(seconds * GC200.clock_hz, abs=1)

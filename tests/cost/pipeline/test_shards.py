"""Programs on several IPUs, built by hand."""

import math
from collections import Counter

import pytest
from graph_costs import program_costs
from hlo_graphs import argument, graph, inner_parameter, loop, op, product, training_step, variable
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.liveness import schedule
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.pipeline.shards import shard
from ipu_keras.cost.tile.exchange import inter_ipu_copy_seconds
from ipu_keras.machine.target import TARGETS

GC200 = TARGETS["gc200"]


def ipus(program):
    return {one.name: one.ipu for one in program.compute_sets}


def homes(program):
    return {name: value.ipu for name, value in program.values.items()}


def test_two_layers_on_two_ipus():
    """l0 | l1 loss: `h0` goes forward and `dh0` back; each is copied once."""
    program = shard(schedule(flatten(training_step(2))), 2)
    assert ipus(program) == {
        "z0": 0,
        "h0": 0,
        "h0@ipu1": 1,
        "z1": 1,
        "h1": 1,
        "loss": 1,
        "dz1": 1,
        "dw1": 1,
        "dh0": 1,
        "u1": 1,
        "dh0@ipu0": 0,
        "dz0": 0,
        "dw0": 0,
        "u0": 0,
    }
    reads = {one.name: one.reads for one in program.compute_sets}
    assert reads["z1"] == ("h0@ipu1", "w1")
    assert reads["dw1"] == ("h0@ipu1", "dz1")
    assert reads["dz0"] == ("dh0@ipu0", "h0")
    assert {name: homes(program)[name] for name in ("x", "w0", "w1", "h0@ipu1")} == {
        "x": 0,
        "w0": 0,
        "w1": 1,
        "h0@ipu1": 1,
    }
    copies = {name: v.copy_of for name, v in program.values.items() if v.copy_of is not None}
    assert copies == {"h0@ipu1": "h0", "dh0@ipu0": "dh0"}
    copy = next(one for one in program.compute_sets if one.name == "h0@ipu1")
    assert (copy.family, copy.reads, copy.layer) == ("inter-IPU copy", ("h0",), "l1")


def test_what_branches_take_is_copied_whichever_runs():
    """l0 | l1: two branches take `h`, of which the one that runs comes last."""
    here = {"layer": "l1"}
    bodies = {
        "once": graph(inner_parameter("a", 8, 8), op("n", "negate", (8, 8), "a", **here)),
        "twice": graph(
            inner_parameter("b", 8, 8),
            op("m", "tanh", (8, 8), "b", **here),
            product("o", (8, 8), "m", "m", **here),
        ),
    }
    step = graph(
        op("p", "parameter", (), dtype="bool", role="argument"),
        argument("x", 8, 8),
        variable("w", 8, 8),
        product("h", (8, 8), "x", "w", layer="l0"),
        op(
            "if",
            "conditional",
            (8, 8),
            "p",
            "h",
            "h",
            body=("once", "twice"),
            num_branch_inputs=(1, 1),
            **here,
        ),
        functions=bodies,
    )
    program = shard(flatten(step), 2)
    assert [(one.name, one.ipu, one.repeat) for one in program.compute_sets] == [
        ("h", 0, 1),
        ("h@ipu1", 1, 1),
        ("if/branch0/n", 1, 0),
        ("if/branch0/end", 1, 0),
        ("if/branch1/m", 1, 1),
        ("if/branch1/o", 1, 1),
    ]


def test_one_ipu_changes_nothing():
    program = flatten(training_step(2))
    assert shard(program, 1) is program


def test_a_program_that_computes_nothing():
    model = model_graph("step", graph(argument("x", 1000)), GC200, CostOptions(num_ipus=2))
    assert model.memory.peak_by_tile.sum() == 2 * GC200.num_tiles * GC200.stack_bytes + 4000


def test_a_copy_costs_the_links():
    program = shard(schedule(flatten(training_step(2))), 2)
    costs = program_costs(program)
    cost = costs["h0@ipu1"]
    # 16,384 bytes at 70 GB/s and 0.16 us on the way at 1.33 GHz; 314 on chip; 3000 to wait; 600.
    assert cost.cycles == math.ceil((16_384 / 70e9 + 0.16e-6) * 1.33e9 + 314 + 3000 + 600)
    assert (cost.sync_cycles, cost.detail) == (600, "from IPU 0 to IPU 1")
    assert costs["dh0@ipu0"].cycles == cost.cycles


def test_the_way_between_pairs_is_slower():
    near, far, farther = (
        inter_ipu_copy_seconds(GC200, 10**6, source=source, to=to)
        for source, to in ((0, 1), (1, 3), (0, 3))
    )
    # Half the links lead to the next pair.
    assert far - near == pytest.approx(10**6 / 70e9)
    assert farther - far == pytest.approx(0.16e-6)
    with pytest.raises(ValueError, match="`hops` must be positive"):
        inter_ipu_copy_seconds(GC200, 1, source=2, to=2)


def test_optimizer_state_lies_with_its_layer():
    """`m` is read by the update alone, which works where the gradient is."""
    ops = [argument("x", 100)]
    for k in range(2):
        ops += [variable(f"w{k}", 100), variable(f"m{k}", 100, result=k)]
    ops += [
        op("a", "multiply", (100,), "x", "w0", layer="first"),
        op("b", "multiply", (100,), "a", "w1", layer="second"),
        op("gb", "multiply", (100,), "b", "a", layer="second", backward=True),
        op("ga", "multiply", (100,), "gb", "x", layer="first", backward=True),
        op("n0", "add", (100,), "m0", "ga", layer="adam"),
        op("n1", "add", (100,), "m1", "gb", layer="adam"),
    ]
    program = shard(flatten(graph(*ops, results=("n0", "n1"))), 2)
    assert {k: homes(program)[k] for k in ("m0", "m1")} == {"m0": 0, "m1": 1}
    assert (ipus(program)["n0"], ipus(program)["n1"]) == (0, 1)


def test_constants_are_on_every_ipu_that_reads_them():
    program = shard(
        flatten(
            graph(
                argument("x", 100),
                op("table", "constant", (100,)),
                variable("v", 100),
                variable("w", 100),
                op("a", "multiply", (100,), "v", "table", layer="first"),
                op("b", "multiply", (100,), "w", "table", layer="second"),
            )
        ),
        2,
    )
    assert ipus(program) == {"a": 0, "b": 1}
    assert program.compute_sets[1].reads == ("w", "table@ipu1")
    assert program.values["table@ipu1"].role == "constant"


def test_stages_are_even():
    """Bytes of w are 1, 1, 1, 3: two stages of three each."""
    sizes = (1000, 1000, 1000, 3000)
    ops = [argument("x", 1)]
    for k, size in enumerate(sizes):
        ops.append(variable(f"w{k}", size))
        ops.append(op(f"y{k}", "slice", (1,), f"w{k}", layer=f"l{k}"))
    program = shard(flatten(graph(*ops, results=[f"y{k}" for k in range(4)])), 2)
    assert ipus(program) == {"y0": 0, "y1": 0, "y2": 0, "y3": 1}


def test_of_even_stages_little_crosses():
    """Cuts behind c and behind d leave 60 and 62 of 102 kB, but c hands over a tenth of d's."""
    sizes = {"a": 5000, "b": 5000, "c": 500, "d": 5000, "e": 5000, "f": 5000}
    ops = [argument("x", 10)]
    before = "x"
    for name, size in sizes.items():
        ops.append(variable(f"w{name}", 5000 if name != "d" else 500))
        ops.append(op(name, "custom", (size,), before, f"w{name}", layer=name))
        before = name
    program = shard(flatten(graph(*ops)), 2)
    assert [one.name for one in program.compute_sets if one.ipu == 0] == ["a", "b", "c"]
    assert "c@ipu1" in program.values


def readers(sizes, handed_over=None):
    """Layers l0, l1, ... with variables of those sizes that hand over one element, or so many."""
    ops, before = [argument("x", 1)], "x"
    for k, size in enumerate(sizes):
        ops.append(variable(f"w{k}", size))
        shape = (1 if handed_over is None else handed_over[k],)
        ops.append(op(f"y{k}", "custom", shape, before, f"w{k}", layer=f"l{k}"))
        before = f"y{k}"
    return flatten(graph(*ops))


def where(program):
    return [one.ipu for one in program.compute_sets if one.family != "inter-IPU copy"]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        # The largest layer alone is the capacity; the three before it would fit in one stage.
        ([1000, 1000, 1000, 90_000], [0, 1, 2, 3]),
        ([90_000, 1000, 1000, 1000], [0, 1, 2, 3]),
        # Behind it, 1000 | 1000 1000 or 1000 1000 | 1000: equally near to 1500, and the last.
        ([90_000, 90_000, 1000, 1000, 1000], [0, 1, 2, 2, 3]),
        # 4000 for three: 1000 is nearest to a third; of 3000 for two, 2000 as near as 1000.
        ([90_000, 1000, 1000, 1000, 1000], [0, 1, 2, 2, 3]),
        # Nothing to share out: the first takes what the others leave.
        ([0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 2, 3]),
        ([1000, 1000, 1000], [0, 1, 2]),  # fewer layers than IPUs
    ],
)
def test_no_ipu_is_empty_that_there_is_a_layer_for(sizes, expected):
    assert where(shard(readers(sizes), 4)) == expected


def test_a_layer_is_left_for_each_ipu_though_little_crosses_late():
    """The cut behind l3 hands over one element and leaves one layer for two IPUs."""
    program = readers([1000, 10, 10, 10, 10], handed_over=[50, 40, 30, 1, 1])
    assert where(shard(program, 3)) == [0, 0, 0, 1, 2]


def test_a_layer_that_only_updates_a_variable_of_another_is_none():
    """`n` counts: it works where `v` lies, and is no layer that an IPU could have."""
    ops = (
        argument("x", 100),
        variable("v", 100, result=0),
        op("a", "multiply", (100,), "x", "v", layer="first"),
        op("b", "tanh", (100,), "a", layer="second"),
        op("n", "add", (100,), "v", "x"),
    )
    program = shard(flatten(graph(*ops, results=("n", "b"))), 2)
    assert {name: ipus(program)[name] for name in "abn"} == {"a": 0, "b": 1, "n": 0}


def test_variables_are_updated_where_they_lie():
    """The first layer reads `v`; the second one's result replaces it."""
    program = shard(
        flatten(
            graph(
                argument("x", 100),
                variable("v", 100, result=0),
                variable("w", 100),
                op("a", "multiply", (100,), "x", "v", layer="first"),
                op("b", "multiply", (100,), "a", "w", layer="second"),
                op("n", "add", (100,), "v", "b", layer="second"),
                op("y", "negate", (100,), "b", layer="second"),
                results=("n", "y"),
            )
        ),
        2,
    )
    assert {name: ipus(program)[name] for name in "abny"} == {"a": 0, "b": 1, "n": 0, "y": 1}
    assert (homes(program)["v"], homes(program)["n"]) == (0, 0)
    assert [one.reads for one in program.compute_sets if one.name == "n"] == [("v", "b@ipu0")]


def test_loops_copy_what_they_need_once():
    """`w` of a loop that another IPU runs crosses once; nothing crosses inside the loop."""
    program = shard(flatten(loop(7)), 4)
    copies = [one for one in program.compute_sets if one.family == "inter-IPU copy"]
    assert all(one.repeat == 1 for one in copies)
    assert [one.repeat for one in program.compute_sets if "next" in one.name] == [7]


def smallest_capacity(sizes, num_stages):
    """Of all contiguous cuts, the fullest stage of the most even one."""
    if num_stages == 1 or not sizes:
        return sum(sizes)
    return min(
        max(sum(sizes[:end]), smallest_capacity(sizes[end:], num_stages - 1))
        for end in range(1, len(sizes) + 1)
    )


@given(
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=12),
    num_ipus=st.sampled_from([1, 2, 4, 8]),
)
def test_stages_follow_each_other(sizes, num_ipus):
    """Any program: all reads are on the reader's IPU, and layers in order."""
    ops = [argument("x", 8)]
    for k, size in enumerate(sizes):
        ops.append(variable(f"w{k}", size))
        before = f"y{k - 1}" if k else "x"
        ops.append(op(f"y{k}", "custom", (size,), before, f"w{k}", layer=f"l{k}"))
    program = shard(flatten(graph(*ops)), num_ipus)
    places = where(program)
    assert places == sorted(places)
    assert set(places) == set(range(min(num_ipus, len(sizes))))
    # A variable and what the layer hands over, which no gradient waits for.
    full = Counter(dict.fromkeys(places, 0))
    for ipu, size in zip(places, sizes, strict=True):
        full[ipu] += 4 * size
    assert max(full.values()) <= 1.1 * smallest_capacity([4 * size for size in sizes], num_ipus)
    for one in program.compute_sets:
        if one.family != "inter-IPU copy":
            assert {homes(program)[name] for name in one.reads} == {one.ipu}


def test_variables_that_are_too_large_fit_on_two_ipus():
    """Ten weights of 100 MiB; an IPU has 897 MiB."""
    step = training_step(10, batch=8, width=5120)
    one, two, half = (
        model_graph("step", step, GC200, options)
        for options in (CostOptions(), CostOptions(num_ipus=2), CostOptions(dtype="float16"))
    )
    assert one.memory.always_live_by_tile.min() > GC200.tile_bytes
    assert [model.memory.fits for model in (one, two, half)] == [False, True, True]
    weights = [value for value in two.program.values.values() if value.role == "variable"]
    assert [sum(w.spec.nbytes for w in weights if w.ipu == k) for k in (0, 1)] == [500 * 2**20] * 2
    assert two.memory.peak_by_tile.shape == (2 * GC200.num_tiles,)
    copies = [one.name for one in two.program.compute_sets if one.family == "inter-IPU copy"]
    assert copies == ["h4@ipu1", "dh4@ipu0"]
    assert two.cycles_per_step == one.cycles_per_step + sum(
        cost.cycles for cost in two.costs if cost.vertex == "inter-IPU copy"
    )


@pytest.mark.parametrize("num_ipus", [0, 3, -2])
def test_numbers_of_ipus_that_no_system_has(num_ipus):
    with pytest.raises(ValueError, match=rf"power of two: .* Received: num_ipus={num_ipus}"):
        CostOptions(num_ipus=num_ipus)

"""What operations of Poplar's libraries cost, on graphs built by hand."""

from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, inner_parameter, op, poplar_call, product, spec, variable

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.poplar_bodies import with_bodies_in_order
from ipu_keras.cost.flat.recomputation import is_repeatable
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.passes import model_graph
from ipu_keras.ir import Op
from ipu_keras.machine.target import TARGETS, Confidence
from ipu_keras.program import Pipeline
from ipu_keras.store.canonical_json import from_json, to_json

GC200 = TARGETS["gc200"]
TILES = 1472
SHAPE = (TILES, 64)  # 256 bytes on each tile


def three_copies(source):
    """x ─ a ─ b ─ c, each the one before in reverse."""
    return (
        op("a", "reverse", SHAPE, source, dimensions=(0,)),
        op("b", "reverse", SHAPE, "a", dimensions=(0,)),
        op("c", "reverse", SHAPE, "b", dimensions=(0,)),
    )


def marked(*ops, results=("c",), functions=None, inputs=("x",), **others):
    """y = f(x), and its negative; f is one operation."""
    parameters = (inner_parameter(f"p{k}", *SHAPE, first_leaf=k) for k in range(len(inputs)))
    body = graph(*parameters, *ops, results=results)
    return graph(
        argument("x", *SHAPE),
        poplar_call("f", "Reversal", *inputs, shapes=(SHAPE,) * len(results), **others),
        op("y", "sort", SHAPE, "f" if len(results) == 1 else "f:0", dimensions=(0,)),
        functions={"body": body, **(functions or {})},
    )


def model(step, **options):
    return model_graph("step", step, GC200, CostOptions(**options))


def test_an_operation_costs_what_it_consists_of():
    found = model(marked(*three_copies("p0")))
    plain = model(graph(argument("x", *SHAPE), *three_copies("x")))
    assert [one.name for one in found.program.compute_sets] == ["f", "y"]
    assert found.program.compute_sets[0].family == "Reversal"
    whole = found.costs[0]
    assert whole.parts == plain.costs
    for number in ("compute_cycles", "exchange_cycles", "sync_cycles", "exchange_bytes"):
        assert getattr(whole, number) == sum(getattr(part, number) for part in plain.costs)
    # Each receives 256 bytes on every tile: 64 cycles, and 157 on the way.
    assert whole.exchange_cycles == 3 * (64 + 157)
    assert (whole.confidence, whole.detail) == (Confidence.DERIVED, "3 compute sets")


def test_its_own_values_are_temporary():
    """`a` and `b` are, and what arrives at a tile; `x` and `c` are not its own.

              a   b   arrives
    a = x     256     256
    b = a     256 256 256
    c = b         256 256
    """
    found = model(marked(*three_copies("p0")))
    assert found.costs[0].temporary_bytes == 3 * 256
    # While it runs, `x` and `f` besides: the same as if it were written out.
    assert found.memory.live_by_position[0] == TILES * 5 * 256
    plain = model(graph(argument("x", *SHAPE), *three_copies("x")))
    # Somebody else may need `x` in the one, `c` is not there yet in the other.
    assert plain.memory.live_by_position.max() == TILES * 3 * 256


def test_code_is_that_of_its_parts():
    found = model(marked(*three_copies("p0")))
    plain = model(
        graph(
            argument("x", *SHAPE),
            *three_copies("x"),
            op("y", "sort", SHAPE, "c", dimensions=(0,)),
        )
    )
    for category in ("vertex_code", "vertex_state", "control_code", "exchange_code"):
        assert found.memory.bytes_by_category[category] == plain.memory.bytes_by_category[category]


def test_floating_point_operations():
    found = model(marked(op("a", "tanh", SHAPE, "p0"), op("c", "sine", SHAPE, "a")))
    (one,) = found.program.compute_sets[0].body.compute_sets
    assert [inner.kind for inner in one.ops] == ["tanh", "sine"]  # one vertex
    assert found.program.compute_sets[0].flops == 2 * TILES * 64


def test_the_least_sure_part_counts():
    found = model(marked(*three_copies("p0")[:2], op("c", "fft", SHAPE, "b")))
    assert found.costs[0].confidence is Confidence.GUESSED


def loop_of_products(trips):
    """c = tanh(c w), some times over."""
    condition = graph(
        inner_parameter("h", 64, 64),
        inner_parameter("w", 64, 64, first_leaf=1),
        op("more", "compare", (), "h"),
    )
    body = graph(
        inner_parameter("h", 64, 64),
        inner_parameter("w", 64, 64, first_leaf=1),
        product("z", (64, 64), "h", "w"),
        op("next", "tanh", (64, 64), "z"),
        results=("next", "w"),
    )
    loop = Op(
        "while",
        "while",
        (spec(64, 64),) * 2,
        inputs=("p0", "p1"),
        body=("loop_condition", "loop_body"),
        attributes={"trip_count": trips, "max_trip_count": None},
    )
    inside = graph(
        inner_parameter("p0", 64, 64),
        inner_parameter("p1", 64, 64, first_leaf=1),
        loop,
        results=("while:0",),
    )
    functions = {"inside": inside, "loop_condition": condition, "loop_body": body}
    return graph(
        argument("x", 64, 64),
        variable("w", 64, 64),
        poplar_call("lstm", "LSTM", "x", "w", shapes=((64, 64),), body="inside"),
        functions=functions,
    )


def test_loops_within_an_operation():
    once, often = (model(loop_of_products(trips)) for trips in (1, 10))
    (one,) = often.program.compute_sets
    assert (one.repeat, one.flops) == (1, 10 * (2 * 64**3 + 64**2))
    body = often.program.compute_sets[0].body.compute_sets
    carried = [part.cycles for inner, part in zip(body, often.costs[0].parts, strict=True)]
    in_loop = sum(cycles for inner, cycles in zip(body, carried, strict=True) if inner.repeat == 10)
    assert often.costs[0].cycles - once.costs[0].cycles == 9 * in_loop
    assert often.costs[0].temporary_bytes == once.costs[0].temporary_bytes


def test_loops_without_a_count():
    assert model(loop_of_products(None)).program.num_unknown_loops == 1


def test_an_operation_within_a_loop():
    body = graph(
        inner_parameter("i", *SHAPE),
        poplar_call("f", "Reversal", "i", shapes=[SHAPE], body="inside"),
    )
    inside = graph(inner_parameter("p0", *SHAPE), *three_copies("p0"))
    condition = graph(inner_parameter("i", *SHAPE), op("more", "compare", (), "i"))
    loop = Op(
        "while",
        "while",
        (spec(*SHAPE),),
        inputs=("x",),
        body=("condition", "body"),
        attributes={"trip_count": 7, "max_trip_count": None},
    )
    step = graph(
        argument("x", *SHAPE),
        loop,
        functions={"condition": condition, "body": body, "inside": inside},
    )
    found = model(step)
    one = next(one for one in found.program.compute_sets if one.body is not None)
    assert (one.repeat, one.name, len(one.body.compute_sets)) == (7, "while/body/f", 3)
    assert [inner.repeat for inner in one.body.compute_sets] == [1, 1, 1]


def test_what_it_only_passes_on_is_no_result():
    """The first result is `x` in another shape, the second one is made, the third is the same."""
    step = marked(
        op("r", "reshape", SHAPE, "p0"),
        op("c", "reverse", SHAPE, "r", dimensions=(0,)),
        op("t", "reshape", SHAPE, "c"),
        results=("r", "c", "t"),
    )
    program = flatten(step)
    one, y = program.compute_sets
    assert [value.name for value in one.writes] == ["f:1"]
    assert one.body.results == ("f/c",)
    assert y.reads == ("x",)


def test_an_operation_that_computes_nothing_is_gone():
    program = flatten(marked(op("c", "reshape", SHAPE, "p0")))
    assert [one.name for one in program.compute_sets] == ["y"]
    assert program.compute_sets[0].reads == ("x",)


def test_constants_within_are_in_memory_all_the_time():
    table = op("table", "constant", SHAPE)
    found = model(marked(table, op("c", "add", SHAPE, "p0", "table")))
    assert found.memory.bytes_by_category["constants"] == TILES * 256
    assert found.costs[0].temporary_bytes == 256  # of the table, which lies on other tiles
    assert "f/table" in found.program.compute_sets[0].reads


def test_constants_that_it_returns():
    program = flatten(
        marked(op("c", "constant", SHAPE), op("d", "tanh", SHAPE, "p0"), results=("c", "d"))
    )
    assert program.values["f/c"].role == "constant"
    assert program.compute_sets[1].reads == ("f/c",)


def test_what_it_takes_is_not_overwritten():
    """Though nobody within needs it any more: that is for others to know."""
    found = model(marked(op("c", "tanh", SHAPE, "p0")))
    assert found.program.compute_sets[0].body.in_place == {}
    assert found.costs[0].temporary_bytes == 0


def test_precision_holds_within():
    found = model(marked(*three_copies("p0")), dtype="float16")
    body = found.program.compute_sets[0].body
    assert {value.spec.dtype for value in body.values.values()} == {"float16"}
    assert found.costs[0].temporary_bytes == 3 * 128


def test_operations_within_operations():
    inner = graph(inner_parameter("q", *SHAPE), *three_copies("q"))
    found = model(
        marked(
            poplar_call("g", "Inner", "p0", shapes=[SHAPE], body="inner"),
            op("c", "reverse", SHAPE, "g", dimensions=(0,)),
            functions={"inner": inner},
        )
    )
    plain = model(graph(argument("x", *SHAPE), *three_copies("x")))
    assert found.costs[0].compute_cycles == 4 * plain.costs[0].compute_cycles
    # Those of the inner one, `g` and what arrives.
    assert found.costs[0].temporary_bytes == 4 * 256
    assert found.memory.bytes_by_category["control_code"] == 5 * 24 * TILES


@pytest.mark.parametrize(("kind", "again"), [("reverse", True), ("sort", True), ("fft", False)])
def test_what_runs_again_as_a_whole(kind, again):
    program = with_bodies_in_order(flatten(marked(op("c", kind, SHAPE, "p0", dimensions=(0,)))))
    assert is_repeatable(program.compute_sets[0]) is again


def test_operations_of_stages():
    step = marked(*three_copies("p0"), stage=0, layer="first")
    y = replace(step.ops[-1], stage=1)
    found = model(
        replace(step, ops=(*step.ops[:-1], y)),
        pipeline=Pipeline(device_mapping=(0, 1)),
        steps_per_execution=4,
    )
    one = found.program.compute_sets[0]
    assert (one.name, one.stage, one.ipu, one.layer) == ("f", 0, 0, "first")
    assert found.pipeline_run.stage_cycles[0] == found.costs[0].cycles


def test_models_are_kept_as_text():
    found = model(loop_of_products(3))
    text = to_json(found)
    assert text == to_json(model(loop_of_products(3)))
    assert to_json(from_json(ModelledProgram, text)) == text

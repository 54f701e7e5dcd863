"""Gradients that are added up over batches and replicas, in programs built by hand."""

from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, op, product, staged_step, training_step, variable

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.pipeline.accumulation import accumulate, reduce_over_replicas
from ipu_keras.cost.pipeline.step_parts import attribute_parts
from ipu_keras.machine.target import TARGETS
from ipu_keras.program import Pipeline

GC200 = TARGETS["gc200"]


def step(layers=2):
    """`training_step`, whose subtractions are traced in the scope of the weight update."""
    whole = training_step(layers)
    ops = (replace(o, weight_update=True) if o.name[0] == "u" else o for o in whole.ops)
    return replace(whole, ops=tuple(ops))


def flat(layers=2):
    return attribute_parts(flatten(step(layers)))


def named(program, name):
    return next(one for one in program.compute_sets if one.name == name)


def test_each_gradient_has_an_accumulator():
    program = accumulate(flat())
    names = [one.name for one in program.compute_sets]
    assert names[names.index("dw1") + 1] == "dw1/accumulate"
    assert names[-4:] == ["u0", "u1", "dw0/accumulator/zero", "dw1/accumulator/zero"]
    assert named(program, "dw0/accumulate").reads == ("dw0/accumulator", "dw0")
    assert named(program, "u0").reads == ("w0", "dw0/accumulator")
    assert program.values["dw0/accumulator"].role == "variable"
    found = [name for name, value in program.values.items() if value.is_accumulator]
    assert found == ["dw0/accumulator", "dw1/accumulator"]
    assert program.updates["dw0/accumulate"] == "dw0/accumulator"
    assert program.updates["dw0/accumulator/zero"] == "dw0/accumulator"
    assert [one.weight_update for one in program.compute_sets if "accumul" in one.name] == [
        False,
        False,
        True,
        True,
    ]


def test_accumulators_of_another_type():
    program = accumulate(flat(), dtype="float16")
    assert program.values["dw0/accumulator"].spec.dtype == "float16"
    assert [o.kind for o in named(program, "dw0/accumulate").ops] == ["convert", "add"]


def test_whole_numbers_are_no_gradients():
    one = graph(
        argument("x", 8),
        variable("n", 8, result=0),
        op("count", "negate", (8,), "x", dtype="int32"),
        replace(op("new", "add", (8,), "n", "count", dtype="int32"), weight_update=True),
    )
    program = attribute_parts(flatten(one))
    assert accumulate(program) == program


def test_gradients_of_replicas_are_added_before_the_update():
    program = accumulate(reduce_over_replicas(flat(), 4))
    reduced = named(program, "dw0/reduced")
    assert (reduced.family, reduced.weight_update) == ("collective", True)
    # Three sums of each of 64 x 64 numbers, which four replicas share.
    assert reduced.flops == 64 * 64 * 3 // 4
    assert reduced.ops[0].attributes == {"num_replicas": 4}
    assert reduced.reads == ("dw0/accumulator",)
    assert named(program, "u0").reads == ("w0", "dw0/reduced")


def test_what_replicas_add_up_themselves_is_left_alone():
    whole = step()
    reduce = op("sum", "all-reduce", (64, 64), "dw0", num_replicas=2)
    ops = [o for o in whole.ops if o.name != "u0"]
    ops += [
        replace(reduce, weight_update=True),
        replace(op("u0", "subtract", (64, 64), "w0", "sum"), weight_update=True),
    ]
    program = attribute_parts(flatten(replace(whole, ops=tuple(ops))))
    assert reduce_over_replicas(program, 2) is program
    assert reduce_over_replicas(flat(), 1) == flat()


def test_batches_cost_as_before_and_share_the_update():
    one = model_graph("step", step(), GC200)
    many = model_graph(
        "step", step(), GC200, CostOptions(gradient_accumulation_count=8, steps_per_execution=8)
    )
    sets = zip(many.program.compute_sets, many.costs, strict=True)
    by_name = {one.name: (one, cost) for one, cost in sets}
    update, cost = by_name["u0"]
    assert update.weight_update
    assert cost.in_step(update, 8).compute_cycles == -(-cost.compute_cycles // 8)
    updates = sum(c.cycles for o, c in by_name.values() if o.weight_update)
    batches = sum(c.cycles for o, c in by_name.values() if not o.weight_update)
    assert many.compute_cycles == pytest.approx(batches + updates / 8, abs=20)
    added = sum(c.cycles for o, c in by_name.values() if o.name.endswith("/accumulate"))
    assert batches - added == one.compute_cycles - sum(
        c.cycles
        for o, c in zip(one.program.compute_sets, one.costs, strict=True)
        if o.name in ("u0", "u1")
    )


def test_accumulators_are_in_memory_all_the_time():
    one, many = (
        model_graph(
            "step",
            step(),
            GC200,
            CostOptions(gradient_accumulation_count=n, steps_per_execution=n),
        )
        for n in (1, 2)
    )
    weights = 2 * 4 * 64 * 64
    assert one.memory.bytes_by_category["variables"] == weights
    assert many.memory.bytes_by_category["variables"] == 2 * weights


def test_gradients_are_free_as_soon_as_they_are_added():
    names = [
        o.name
        for o in model_graph(
            "step",
            step(3),
            GC200,
            CostOptions(gradient_accumulation_count=4, steps_per_execution=4),
        ).program.compute_sets
    ]
    assert names.index("dw2/accumulate") == names.index("dw2") + 1
    assert names.index("dw2/accumulate") < names.index("dz1")
    # All of the update comes last.
    assert set(names[-6:]) == {f"u{k}" for k in range(3)} | {
        f"dw{k}/accumulator/zero" for k in range(3)
    }


def test_gradients_that_a_loop_makes():
    """The addition comes behind the loop, not into it."""
    body = graph(
        op("i", "parameter", (3,), first_leaf=0),
        op("next", "tanh", (3,), "i"),
        results=("next",),
    )
    condition = graph(op("i", "parameter", (3,), first_leaf=0), op("more", "compare", (), "i"))
    whole = op("while", "while", (3,), "x", body=("condition", "body"), trip_count=4)
    one = graph(
        argument("x", 3),
        variable("w", 3, result=0),
        whole,
        replace(op("new", "subtract", (3,), "w", "while"), weight_update=True),
        functions={"condition": condition, "body": body},
    )
    names = [o.name for o in accumulate(attribute_parts(flatten(one))).compute_sets]
    (addition,) = [k for k, name in enumerate(names) if name.endswith("/accumulate")]
    assert names[addition - 1].startswith("while/")
    assert names[addition + 1] == "new"


def test_replicas_share_the_work_and_exchange_gradients():
    options = CostOptions(num_replicas=4)
    one, four = (model_graph("step", step(), GC200, o) for o in (CostOptions(), options))
    reduced = [
        cost
        for o, cost in zip(four.program.compute_sets, four.costs, strict=True)
        if o.family == "collective"
    ]
    assert [cost.detail for cost in reduced] == ["4 replicas"] * 2
    assert four.compute_cycles >= one.compute_cycles + sum(cost.cycles for cost in reduced)
    # Four IPUs have the host links of two. A seed comes before the one step of the execution.
    payload = (4 * 64 * 64 + 4) / 7e9 * 1.33e9
    assert four.host_cycles == pytest.approx(480_000 + 2 * payload, abs=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"gradient_accumulation_count": 0},
            "`gradient_accumulation_count` must be a positive integer. "
            "Received: gradient_accumulation_count=0",
        ),
        (
            {"num_replicas": 2.0},
            "`num_replicas` must be a positive integer. Received: num_replicas=2.0",
        ),
        (
            {"gradient_accumulation_count": 4, "steps_per_execution": 6},
            "`steps_per_execution` must be a multiple of `gradient_accumulation_count`: "
            "executions end with a weight update. Received: steps_per_execution=6, "
            "gradient_accumulation_count=4",
        ),
        (
            {"gradient_accumulation_dtype": "int8"},
            "`gradient_accumulation_dtype` must be one of float16, float32, or None for that of "
            "the gradients. Received: gradient_accumulation_dtype='int8'",
        ),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ValueError) as error:
        CostOptions(**options)
    assert str(error.value) == message


def test_a_product_as_a_gradient():
    one = graph(
        argument("x", 8, 8),
        variable("w", 8, 8, result=0),
        product("g", (8, 8), "x", "x", backward=True, layer="dense"),
        replace(op("new", "subtract", (8, 8), "w", "g"), weight_update=True),
    )
    program = accumulate(attribute_parts(flatten(one)))
    added = named(program, "g/accumulate")
    assert (added.layer, added.backward) == ("dense", True)


def tied(*, reader=None):
    """`staged_step` whose first and last layer have one variable, whose gradients are added up."""
    whole = staged_step(3)
    ops = []
    for one in whole.ops:
        if one.name in ("w2", "u2", "u0"):
            continue
        inputs = tuple("w0" if name == "w2" else name for name in one.inputs)
        ops.append(replace(one, inputs=inputs))
        if one.name == "dw0":
            both = op("dw", "add", (64, 64), "dw2", "dw0", backward=True)
            ops.append(replace(both, stage=0))
    update = op("u0", "subtract", (64, 64), "w0", "dw", layer="sgd")
    ops.append(replace(update, weight_update=True))
    results = ("loss", "u0", "u1")
    if reader is not None:
        ops.append(replace(op("more", "negate", (64, 64), reader), stage=0))
        results = (*results, "more")
    return graph(*ops, results=results)


def tied_model(device_mapping, **changes):
    options = CostOptions(
        gradient_accumulation_count=6,
        steps_per_execution=6,
        pipeline=Pipeline(device_mapping=device_mapping),
    )
    return model_graph("step", tied(**changes), GC200, options)


def test_a_variable_of_several_stages_accumulates_in_each():
    found = tied_model((0, 1, 0)).program
    names = [one.name for one in found.compute_sets]
    assert "dw" not in names
    assert "dw" not in found.values
    late, early = named(found, "dw2/accumulate"), named(found, "dw0/accumulate")
    assert late.reads == ("dw/accumulator", "dw2")
    assert early.reads == ("dw/accumulator", "dw0")
    assert (late.stage, early.stage) == (2, 0)
    assert late.backward
    assert named(found, "u0").reads == ("w0", "dw/accumulator")
    # Nothing of a batch waits until the first stage adds it up; what is left are activations.
    assert not {"dw2", "dw"} & found.stashes.keys()


def test_a_sum_over_stages_that_is_needed_stays():
    """If stages are on two IPUs, or if somebody else reads the sum."""
    for found in (tied_model((0, 1, 2)), tied_model((0, 1, 0), reader="dw")):
        assert named(found.program, "dw/accumulate").reads == ("dw/accumulator", "dw")


def test_one_ipu_needs_less_for_a_variable_of_two_stages():
    shared, apart = tied_model((0, 1, 0)), tied_model((0, 1, 0), reader="dw")
    kept = {name: shared.program.stashes.get(name, 0) for name in apart.program.stashes}
    assert sum(apart.program.stashes.values()) > sum(kept.values())
    assert shared.memory.bytes_by_category["variables"] == 4 * 4 * 64 * 64

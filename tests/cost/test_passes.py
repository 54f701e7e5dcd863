"""The passes of the cost model in their order, on graphs built by hand."""

import dataclasses
import math
import re
from importlib.util import find_spec

import numpy as np
import pytest
from hlo_graphs import argument, graph, inner_parameter, op, product, variable
from project_imports import PROJECT

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.passes import MODEL_PASSES, model_graph
from ipu_keras.machine.target import TARGETS

GC200 = TARGETS["gc200"]


def training_step():
    """y = x w; w -= y' x, returned with a loss."""
    dot = {"lhs_batch_dimensions": (), "rhs_batch_dimensions": ()}
    return graph(
        argument("x", 64, 128),
        variable("w", 128, 256, result=1),
        op("zero", "constant", (), value=0.0),
        op(
            "y",
            "dot",
            (64, 256),
            "x",
            "w",
            layer="dense",
            lhs_contracting_dimensions=(1,),
            rhs_contracting_dimensions=(0,),
            **dot,
        ),
        op("loss", "reduce", (), "y", "zero", dimensions=(0, 1), operation="add"),
        op(
            "g",
            "dot",
            (128, 256),
            "x",
            "y",
            layer="dense",
            lhs_contracting_dimensions=(0,),
            rhs_contracting_dimensions=(0,),
            **dot,
        ),
        op("new", "subtract", (128, 256), "w", "g", layer="sgd"),
        results=("loss", "new"),
    )


def test_the_passes_fill_the_model():
    model = model_graph("step", training_step(), GC200)
    assert [one.name for one in model.program.compute_sets] == ["y", "g", "new", "loss"]
    assert len(model.costs) == 4
    assert all(cost.cycles > 0 for cost in model.costs)
    assert set(model.regions) == set(model.program.values)
    assert model.memory.bytes_by_category["variables"] == 4 * 128 * 256
    # The new value of `w` takes no memory of its own; beside it x, y and g are alive.
    alive = 4 * (64 * 128 + 64 * 256 + 128 * 256)
    temporary = [cost.temporary_bytes for cost in model.costs]
    assert model.memory.live_by_position[1] == pytest.approx(
        alive + GC200.num_tiles * temporary[1], rel=0.05
    )


def test_memory_of_a_variable_by_pencil_and_paper():
    """376,832 bytes are 256 on each of 1472 tiles, which have a stack besides."""
    memory = model_graph("step", graph(variable("w", 1472, 64), results=("w",)), GC200).memory
    assert memory.peak_by_tile.tolist() == [256 + 3168] * 1472
    assert memory.live_by_position.tolist() == [0]


def test_memory_of_a_product_by_pencil_and_paper():
    """4 of 16 x 16 results on each of 64 tiles, 8 times; x and w have 1024 floats each.

    A tile needs 4 times 8 and 8 floats and 4 sums: 176 bytes besides the values, into which it
    receives what it does not have.
    """
    step = graph(argument("x", 16, 64), variable("w", 64, 16), product("y", (16, 16), "x", "w"))
    memory = model_graph("step", step, GC200).memory
    # A type of vertex, a compute set and an exchange; what they leave of a memory element of
    # 16 KiB; 3168 bytes of stack. Of a vertex on each of 512 tiles 44 bytes, 3 pointers of 4 and 6
    # lists of a row; of one that sums, 12 bytes and 2 pointers.
    code, gap = 512 + 24 + 48, 15_800
    state = math.ceil(512 * (44 + 3 * 4 + 6 * (4 + 6) + 12 + 2 * 4) / 1472)
    assert memory.code_bytes == code
    assert memory.bytes_by_category["gaps"] == 1472 * gap
    assert memory.bytes_by_category["vertex_state"] == 1472 * state
    overhead = code + gap + 3168 + state
    # At 128 bytes, x is on the first 32 tiles, w on the next 32, and y on 8 more.
    spread = [128] * (32 + 32 + 8) + [0] * (1472 - 72)
    assert memory.peak_by_tile.tolist() == [overhead + 176 + size for size in spread]
    assert memory.bytes_by_category["variables"] == 4 * 64 * 16


def test_memory_of_branches_by_pencil_and_paper():
    """A branch that sorts takes longest; one that copies `x` and `v` seven times needs more memory.

    128 bytes of each value of 1472 x 32 floats are on each tile.
    """
    slow = graph(
        inner_parameter("a", 1472, 32), op("sorted", "sort", (1472, 32), "a", dimensions=(1,))
    )
    wide = graph(
        inner_parameter("b", 1472, 32),
        inner_parameter("c", 1472, 32, first_leaf=1),
        op("many", "concatenate", (1472, 256), "b", *["c"] * 7, dimensions=(1,)),
        op("at", "parameter", (), dtype="int32", first_leaf=2),
        op("last", "dynamic-slice", (1472, 32), "many", "at", "at", slice_sizes=(1472, 32)),
    )
    step = graph(
        op("p", "parameter", (), dtype="bool", role="argument"),
        argument("x", 1472, 32),
        variable("v", 1472, 32),
        op("i", "parameter", (), dtype="int32", role="argument"),
        op(
            "if",
            "conditional",
            (1472, 32),
            "p",
            "x",
            "x",
            "v",
            "i",
            body=("slow", "wide"),
            num_branch_inputs=(1, 3),
        ),
        op("y", "negate", (1472, 32), "if"),
        functions={"slow": slow, "wide": wide},
    )
    model = model_graph("step", step, GC200)
    names = [one.name for one in model.program.compute_sets]
    assert names == [
        "if/branch1/many",
        "if/branch1/last",
        "if/branch1/end",
        "if/branch0/sorted",
        "y",
    ]
    # What arrives: eight parts; the pairs of a step of the sort, each of two keys; else nothing.
    arriving = [cost.message_bytes for cost in model.costs]
    assert arriving == [1024, 0, 0, 128, 0]
    # x, and of the copies first all, then one more, then that one; x and the sorted; this alone.
    values = [128 + 1024, 128 + 1024 + 128, 128 + 128, 128 + 128, 128]
    live = [1472 * (here + more) for here, more in zip(values, arriving, strict=True)]
    # Before the end of the branch, there is the number of the column.
    live[:2] = [num_bytes + 4 for num_bytes in live[:2]]
    assert model.memory.live_by_position.tolist() == live
    # v is there all the time, though nobody reads it in the branch that counts.
    assert model.memory.bytes_by_category["variables"] == 1472 * 128
    # Time is that of the sort and of `y`; the code is that of all: four types of vertices, four
    # compute sets and the end of a branch, and two exchanges.
    assert model.compute_cycles == model.costs[3].cycles + model.costs[4].cycles
    categories = model.memory.bytes_by_category
    assert categories["vertex_code"] == 1472 * 512 * 4
    assert categories["control_code"] == 1472 * 24 * 5
    assert categories["exchange_code"] == 1472 * 2 * 48


def test_the_document_has_the_passes_in_their_order():
    """And where each lives, in modules that there are."""
    document = (PROJECT / "docs" / "design" / "0003-cost-model.md").read_text("utf-8")
    contents = document[document.index("\n1. `") : document.index("- **Compute sets.**")]
    named = re.findall(r"^\d+\. `(\w+)`", contents, re.MULTILINE)
    assert named == [model_pass.__name__ for model_pass in MODEL_PASSES]
    modules = re.findall(r"`(\w+\.\w+)`", contents)
    assert len(modules) > len(MODEL_PASSES)
    assert [name for name in modules if not find_spec(f"ipu_keras.cost.{name}")] == []


def test_passes_give_new_values_and_equal_ones():
    model = ModelledProgram(name="step", graph=training_step(), target=GC200, options=CostOptions())
    for model_pass in MODEL_PASSES:
        before = dataclasses.replace(model)
        after = model_pass(model)
        assert vars(model).keys() == vars(before).keys()
        assert all(getattr(model, name) is value for name, value in vars(before).items())
        assert model_pass(model).program == after.program
        assert model_pass(model).costs == after.costs
        model = after
    assert model.program == model_graph("step", training_step(), GC200).program


# The copy of the seed with which an execution begins: 8 bytes at 7 GB/s.
SEED = 160_000 + 8 / 7e9 * 1.33e9


def test_host_copies_begin_and_end_once_per_step_and_the_seed_once_an_execution():
    # 64 x 128 floats in, one float out: each copy costs 160,000 cycles and its bytes at 7 GB/s.
    moved = 320_000 + (4 * 64 * 128 + 4) / 7e9 * 1.33e9
    for options, seeds in (
        (CostOptions(), 1),
        (CostOptions(steps_per_execution=32), 1 / 32),
        (CostOptions(copies_seed=False), 0),
    ):
        model = model_graph("step", training_step(), GC200, options)
        assert model.host_cycles == pytest.approx(moved + seeds * SEED, abs=1)


def test_less_memory_for_temporaries():
    small, large = (
        model_graph(
            "step",
            training_step(),
            GC200.with_numbers(tile_bytes=24_000),
            CostOptions(available_memory_proportion=proportion),
        )
        for proportion in (0.05, 1.0)
    )
    temporary = [max(cost.temporary_bytes for cost in model.costs) for model in (small, large)]
    assert temporary[0] < temporary[1]
    assert sum(c.cycles for c in small.costs) > sum(c.cycles for c in large.costs)


def test_twice_the_layers_are_twice_the_cost():
    """Twice the compute sets and cycles, and no more memory at the beginning."""

    def chain(layers):
        ops = [argument("x", 64, 64)]
        for k in range(layers):
            before = f"y{k - 1}" if k else "x"
            ops.append(op(f"y{k}", "reverse", (64, 64), before, dimensions=(k % 2,)))
        return model_graph("chain", graph(*ops), GC200)

    short, long = chain(10), chain(20)
    assert sum(c.cycles for c in long.costs) == 2 * sum(c.cycles for c in short.costs)
    np.testing.assert_array_equal(
        long.memory.live_by_position[1:9], short.memory.live_by_position[1:9]
    )


def test_what_a_loop_takes_from_an_infeed_comes_from_the_host():
    body = graph(
        inner_parameter("total", 64, 128),
        op("batch", "infeed", (64, 128)),
        op("next", "add", (64, 128), "total", "batch"),
        results=("next",),
    )
    condition = graph(inner_parameter("total", 64, 128), op("more", "compare", (), "total"))
    loop = op("loop", "while", (64, 128), "x", body=("condition", "body"), trip_count=5)
    whole = graph(
        argument("x", 64, 128),
        loop,
        op("zero", "constant", (), value=0.0),
        op("sum", "reduce", (), "loop", "zero", dimensions=(0, 1), operation="add"),
        functions={"condition": condition, "body": body},
    )
    payload = ((1 + 5) * 4 * 64 * 128 + 4) / 7e9 * 1.33e9
    # Each of five turns begins and ends a copy, as the argument and the result do.
    model = model_graph("step", whole, GC200)
    assert model.host_cycles == pytest.approx(160_000 * (1 + 5 + 1) + payload + SEED, abs=1)

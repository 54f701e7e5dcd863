"""Which part of a step each operation is in, on graphs built by hand."""

from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, loop, op, product, variable

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.fusion import deduplicate, fuse
from ipu_keras.cost.pipeline.step_parts import attribute_parts, sorted_by_part, without_parts
from ipu_keras.ir import Graph


def staged(one, stage=None, *, update=False):
    return replace(one, stage=stage, weight_update=update)


def parts(program):
    return {one.name: one.part for one in program.compute_sets}


F0, F1, B1, B0 = (0, False, False), (1, False, False), (1, True, False), (0, True, False)
UPDATE = (None, False, True)


def two_stages():
    """x ─ h (0) ─ y (1) ─ loss; dy (1) ─ dh (0) ─ n;  cast of the labels and sums in no stage."""
    return graph(
        argument("x", 8),
        argument("labels", 8),
        variable("w", 8, result=1),
        op("rate", "constant", (), value=0.1),
        op("rates", "broadcast", (8,), "rate"),
        op("cast", "sign", (8,), "labels"),
        staged(op("h", "multiply", (8,), "x", "w"), 0),
        staged(op("y", "tanh", (8,), "h"), 1),
        staged(op("e", "subtract", (8,), "y", "cast"), 1),
        op("doubled", "add", (8,), "e", "e"),
        staged(op("dy", "multiply", (8,), "doubled", "y", backward=True), 1),
        staged(op("late", "negate", (8,), "dy"), 0),
        staged(op("dh", "multiply", (8,), "dy", "x", backward=True), 0),
        staged(op("scaled", "multiply", (8,), "dh", "rates"), update=True),
        op("n", "subtract", (8,), "w", "scaled"),
        results=("e", "n", "late"),
    )


def test_parts_of_two_stages():
    assert parts(attribute_parts(flatten(two_stages()), 2)) == {
        # Of constants: where it is first needed.
        "rates": UPDATE,
        # Without operands: where it is read.
        "cast": F1,
        "h": F0,
        "y": F1,
        "e": F1,
        # It follows its operand.
        "doubled": F1,
        "dy": B1,
        # In stage 0 by name, but it depends on the gradient.
        "late": B0,
        "dh": B0,
        "scaled": UPDATE,
        # It depends on the weight update.
        "n": UPDATE,
    }


def test_without_a_pipeline_only_the_weight_update_counts():
    found = parts(attribute_parts(flatten(two_stages())))
    assert {name for name, part in found.items() if part == UPDATE} == {"rates", "scaled", "n"}
    assert {part for part in found.values() if part != UPDATE} == {(None, False, False)}
    assert set(parts(without_parts(flatten(two_stages()))).values()) == {(None, False, False)}


def test_parts_follow_each_other():
    program = attribute_parts(flatten(two_stages()), 2)
    shuffled = replace(program, compute_sets=program.compute_sets[::-1])
    order = list(dict.fromkeys(one.part for one in sorted_by_part(shuffled, 2).compute_sets))
    assert order == [F0, F1, B1, B0, UPDATE]


def test_operations_of_different_parts_are_not_fused():
    program = fuse(attribute_parts(flatten(two_stages()), 2))
    assert [[o.name for o in one.ops] for one in program.compute_sets] == [
        ["h"],
        ["y"],
        ["cast", "e"],
        ["doubled"],
        ["dy"],
        ["late"],
        ["dh"],
        # A broadcast joins its reader.
        ["rates", "scaled", "n"],
    ]
    together = fuse(without_parts(flatten(two_stages())))
    assert ["dh", "rates", "scaled", "n"] in [
        sorted((o.name for o in one.ops), key=["dh", "rates", "scaled", "n"].index)
        for one in together.compute_sets
        if one.name == "n"
    ]


def test_each_part_computes_for_itself():
    twice = graph(
        argument("x", 8),
        staged(op("a", "tanh", (8,), "x"), 0),
        staged(op("b", "tanh", (8,), "x"), 1),
        op("c", "add", (8,), "a", "b"),
    )
    program = attribute_parts(flatten(twice), 2)
    assert len(deduplicate(program).compute_sets) == 3
    assert len(deduplicate(without_parts(program)).compute_sets) == 2


def test_a_loop_is_in_one_part():
    whole = loop(5)
    body = whole.functions["body"]
    ops = tuple(staged(o, 1) if o.name == "next" else o for o in body.ops)
    functions = {**whole.functions, "body": replace(body, ops=ops)}
    found = parts(attribute_parts(flatten(replace(whole, functions=functions)), 2))
    assert {part for name, part in found.items() if name.startswith("while/")} == {F1}
    # It reads what the loop gives.
    assert found["y"] == F1


def test_constants_of_a_gradient_that_the_forward_pass_shares():
    shared = graph(
        argument("x", 8),
        op("zero", "constant", (), value=0.0),
        staged(op("zeros", "broadcast", (8,), "zero", backward=True), 0),
        staged(op("relu", "maximum", (8,), "x", "zeros"), 0),
        staged(op("y", "negate", (8,), "relu"), 1),
    )
    assert parts(attribute_parts(flatten(shared), 2)) == {"zeros": F0, "relu": F0, "y": F1}


def test_stages_that_cannot_be():
    def step(stage) -> Graph:
        return graph(argument("x", 8), staged(op("y", "negate", (8,), "x"), stage))

    with pytest.raises(ValueError) as error:
        attribute_parts(flatten(step(2)), 2)
    assert str(error.value) == (
        "The pipeline has no stage 2: give `device_mapping` an IPU for each stage. Received: "
        "2 stages, and the operation y in stage 2"
    )
    with pytest.raises(ValueError, match=r"^No operation is in a stage .* a pipeline of 2 stages"):
        attribute_parts(flatten(step(None)), 2)


def test_products_stay_where_they_are():
    one = graph(
        argument("x", 8, 8),
        variable("w", 8, 8),
        staged(product("y", (8, 8), "x", "w"), 0),
        staged(product("z", (8, 8), "y", "w"), 1),
    )
    assert parts(attribute_parts(flatten(one), 2)) == {"y": F0, "z": F1}

"""Several operations as one, on graphs that are built by hand."""

from dataclasses import replace

from ipu_keras.ir import Op, TensorSpec
from ipu_keras.tracing.contraction import contract, cyclic_groups, generations

WORDS, FLOATS = TensorSpec((4,), "uint32"), TensorSpec((2,), "float32")


def one(name, *inputs, outputs=(FLOATS,)):
    return Op(name, "add", outputs, inputs=inputs)


def whole(group):
    """What the tests make of a group: it tells how many there were."""
    return Op(
        group.name.upper(),
        "group",
        group.outputs,
        inputs=group.inputs,
        attributes={"parts": len(group.ops), "input_specs": group.input_specs},
    )


# x ─ a ─┬─ b ─ c ─ e      with the group {a, c}, or {a, b, c}
#        └──────┘
OPS = (
    one("x", outputs=(WORDS, FLOATS)),
    one("a", "x:1", outputs=(FLOATS, WORDS)),
    one("b", "a:0"),
    one("c", "a:0", "b", "x:1"),
    one("e", "c"),
)


def test_a_group_takes_and_gives_what_crosses_its_border():
    ops, results = contract(OPS, ("e", "a:1"), dict.fromkeys("abc", "g"), whole)
    inside = {"parts": 3, "input_specs": (FLOATS,)}
    assert ops == (
        OPS[0],
        Op("G", "group", (FLOATS, WORDS), inputs=("x:1",), attributes=inside),
        one("e", "G:0"),
    )
    assert results == ("e", "G:1")


def test_several_groups_take_from_each_other():
    ops, results = contract(OPS, ("e",), {"a": "g", "b": "g", "c": "h", "e": "h"}, whole)
    assert [(op.name, op.inputs) for op in ops] == [
        ("x", ()),
        ("G", ("x:1",)),
        ("H", ("G:0", "G:1", "x:1")),
    ]
    assert results == ("H",)


def test_a_group_that_is_not_used_is_left_out():
    ops, results = contract(OPS, ("x:0",), {"e": "g"}, whole)
    assert (ops, results) == (OPS[:4], ("x:0",))


def test_a_group_that_does_something_besides_stays():
    """What waits for one of its operations waits for all of it, as it does for others."""
    ops = (
        one("x"),
        replace(one("log", "x", outputs=()), after=("x",)),
        replace(one("text", outputs=()), after=("log",)),
        replace(one("y", "x"), after=("text",)),
    )
    groups = []
    found, _ = contract(
        ops, ("y",), {"log": "g", "text": "g"}, lambda group: groups.append(group) or whole(group)
    )
    assert [(op.name, op.inputs, op.outputs, op.after) for op in found] == [
        ("x", (), (FLOATS,), ()),
        ("G", ("x",), (), ("x",)),
        ("y", ("x",), (FLOATS,), ("G",)),
    ]
    # Within it they wait for each other only.
    assert [(op.name, op.after) for op in groups[0].ops] == [("log", ()), ("text", ("log",))]
    # `y` comes between them.
    ops = (*ops[:2], replace(one("y", "x"), after=("log",)), replace(ops[2], after=("y",)))
    assert cyclic_groups(ops, {"log": "g", "text": "g"}) == {"g"}
    assert generations(ops, {"log", "text"}) == {"log": 0, "text": 1}


def test_a_group_comes_before_those_that_use_it():
    """`b` is traced before the group's last operation, and uses its first."""
    ops = (*OPS[:3], one("c", "a:0"), one("e", "b", "c"))
    ops, _ = contract(ops, ("e",), {"a": "g", "c": "g"}, whole)
    assert [op.name for op in ops] == ["x", "G", "b", "e"]


def test_groups_on_a_cycle():
    assert cyclic_groups(OPS, {"a": "g", "c": "g", "x": "h"}) == {"g"}
    assert cyclic_groups(OPS, {"a": "g", "c": "g", "e": "behind"}) == {"g", "behind"}
    assert cyclic_groups(OPS, {"a": "g", "b": "g", "c": "g"}) == set()


def test_groups_that_need_each_other():
    ops = (one("a"), one("b"), one("c", "a"), one("d", "b"))
    assert cyclic_groups(ops, {"a": "g", "c": "h", "b": "h", "d": "g"}) == {"g", "h"}


def test_generations_of_a_group_that_others_come_between():
    ops = (*OPS, one("f", "e", "b"), one("h", "f"))
    assert generations(ops, {"a", "c", "h"}) == {"a": 0, "c": 1, "h": 2}
    assert generations(ops, {"a", "b", "c"}) == {"a": 0, "b": 0, "c": 0}

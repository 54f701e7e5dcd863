"""How often loops run, on graphs that are built by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.ir import Graph, Op, TensorSpec
from ipu_keras.tracing.trip_counts import iterations, with_trip_counts

INTEGER = TensorSpec((), "int32")
NUMBERS = st.integers(-20, 20)
COMPARISONS = {
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
}


@given(NUMBERS, NUMBERS, NUMBERS, st.sampled_from(sorted(COMPARISONS)))
def test_iterations(start, limit, step, direction):
    """Against counting; 50 steps from -20 pass everything up to 20."""
    value, count = start, 0
    while COMPARISONS[direction](value, limit) and count < 50:
        value, count = value + step, count + 1
    assert iterations(start, limit, step, direction) == (count if count < 50 else None)


def constant(name, value):
    return Op(name, "constant", (INTEGER,), attributes={"value": value})


def parameter(count):
    return Op("p", "parameter", (INTEGER,) * count, attributes={"number": 0, "first_leaf": 0})


def compare(name, left, right, direction="LT"):
    return Op(name, "compare", inputs=(left, right), attributes={"direction": direction})


def loop(name, *inputs, condition="condition", body="body"):
    return Op(name, "while", (INTEGER,) * len(inputs), body=(condition, body), inputs=inputs)


# A body that adds 3 to its first integer, takes 1 from its second, and keeps the third.
BODY = Graph(
    "body",
    (
        parameter(3),
        constant("three", 3),
        constant("one", 1),
        Op("up", "add", (INTEGER,), inputs=("three", "p:0")),
        Op("up_copy", "reshape", (INTEGER,), inputs=("up",)),
        Op("down", "subtract", (INTEGER,), inputs=("p:1", "one")),
        Op("same", "copy", (INTEGER,), inputs=("p:2",)),
    ),
    results=("up_copy", "down", "same"),
)


def counts(condition, *functions):
    """Trip count and bound of a loop over (2, 5, 14) with a condition, and its second run."""
    ops = (
        constant("two", 2),
        constant("five", 5),
        constant("fourteen", 14),
        loop("first", "two", "five", "fourteen"),
        # The same from where the first one ended.
        loop("second", "two", "five", "first:0"),
    )
    called = {"body": BODY, "condition": condition, **{f.name: f for f in functions}}
    found = [op for op in with_trip_counts(ops, called) if op.kind == "while"]
    return [(op.attributes["trip_count"], op.attributes["max_trip_count"]) for op in found]


def condition(*ops, result):
    return Graph("condition", (parameter(3), constant("nine", 9), *ops), results=(result,))


@pytest.mark.parametrize(
    ("check", "count"),
    [
        (compare("c", "p:0", "nine"), 3),  # 2, 5, 8
        (compare("c", "p:0", "nine", "LE"), 3),
        (compare("c", "nine", "p:0", "GT"), 3),
        (compare("c", "p:1", "nine"), None),  # 5, 4, 3, ... for ever
        (compare("c", "p:1", "nine", "GE"), 0),
        # 2 < 5 and 5 > 4, but two that change are not followed.
        (compare("c", "p:0", "p:1"), None),
        (compare("c", "nine", "nine", "NE"), 0),
    ],
)
def test_a_comparison_with_a_constant(check, count):
    first, second = counts(condition(check, result="c"))
    assert first == second == (count, count)


def test_a_limit_that_the_loop_carries():
    # 2, 5, 8, 11 are less than 14. The first loop leaves 2 + 4 * 3 = 14 behind.
    assert counts(condition(compare("c", "p:0", "p:2"), result="c")) == [(4, 4), (4, 4)]
    # 2, 5, 8, 11, 14: five; it leaves 17; 2, 5, ..., 17 are six.
    assert counts(condition(compare("c", "p:0", "p:2", "LE"), result="c")) == [(5, 5), (6, 6)]


def test_the_first_of_several_comparisons_that_fails():
    both = Op("both", "and", inputs=("c", "d"))
    known = (compare("c", "p:0", "nine"), compare("d", "p:0", "p:2"), both)
    assert counts(condition(*known, result="both"))[0] == (3, 3)
    unknown = (known[0], Op("d", "is-finite", inputs=("p:1",)), both)
    assert counts(condition(*unknown, result="both"))[0] == (None, 3)
    never = (compare("c", "nine", "p:0", "LT"), unknown[1], both)
    assert counts(condition(*never, result="both"))[0] == (0, 0)
    assert counts(condition(unknown[1], result="d"))[0] == (None, None)


def test_a_condition_that_calls():
    # As XLA wraps conditions: the call takes the loop's integers one by one.
    inner = Graph(
        "inner", (parameter(3), constant("nine", 9), compare("c", "p:0", "nine")), results=("c",)
    )
    call = Op("call", "call", (INTEGER,), body=("inner",), inputs=("p:0", "p:1", "p:2"))
    assert counts(condition(call, result="call"), inner)[0] == (3, 3)
    # In another order, the 5 that falls is what is less than 9.
    call = Op("call", "call", (INTEGER,), body=("inner",), inputs=("p:1", "p:0", "p:2"))
    assert counts(condition(call, result="call"), inner)[0] == (None, None)


def test_what_is_not_known_before_the_loop():
    ops = (Op("p", "parameter", (INTEGER,), attributes={"first_leaf": 0}), constant("five", 5))
    functions = {"body": BODY, "condition": condition(compare("c", "p:0", "nine"), result="c")}
    found = with_trip_counts((*ops, loop("while", "p", "five", "five")), functions)
    assert found[:2] == ops
    assert found[2].attributes == {
        "trip_count": None,
        "max_trip_count": None,
        "counters": ((1, 5, -1),),  # the first starts from a parameter, the third stays
    }

"""Loops whose turns are known, in graphs built by hand and as TensorFlow traces them."""

import keras
import pytest
import tensorflow as tf
from hlo_graphs import argument, graph, inner_parameter, missing_references, op, spec, variable
from keras import layers

from ipu_keras import profile
from ipu_keras.cost.rewrites.repeats import with_repeats
from ipu_keras.ir import Op

TRIPS = 3


def constant(name, value):
    return op(name, "constant", (), dtype="int32", value=value)


def carried(*shapes):
    """Parameters p0, p1, ... of a body: integers without a shape, or floats of one."""
    return [
        op(f"p{k}", "parameter", shape, dtype="float32" if shape else "int32", first_leaf=k)
        for k, shape in enumerate(shapes)
    ]


def loop(*inputs, shapes, trips=TRIPS, counters=(), name="loop", body="body"):
    return Op(
        name,
        "while",
        tuple(spec(*shape, dtype="float32" if shape else "int32") for shape in shapes),
        inputs=inputs,
        body=("condition", body),
        attributes={"trip_count": trips, "max_trip_count": trips, "counters": counters},
    )


def kinds(ops):
    return [one.kind for one in ops if one.kind not in ("constant", "parameter")]


def found(step):
    """The rewritten step, and the bodies of its loops."""
    made = with_repeats(step)
    assert missing_references(made) == []
    return made, [made.functions[one.body[1]] for one in made.ops if one.kind == "while"]


def rows_of():
    """A loop that looks up and writes rows by integers of its own, and counts by another."""
    shapes = [(), (), (), (TRIPS, 4), (TRIPS, 4)]
    body = graph(
        *carried(*shapes),
        constant("one", 1),
        constant("zero", 0),
        op("turn", "add", (), "p0", "one", dtype="int32"),
        op("row", "dynamic-slice", (1, 4), "p3", "p1", "zero", slice_sizes=(1, 4)),
        op("y", "tanh", (1, 4), "row"),
        op("filled", "dynamic-update-slice", (TRIPS, 4), "p4", "y", "p2", "zero"),
        op("next", "add", (), "p1", "one", dtype="int32"),
        op("last", "add", (), "p2", "one", dtype="int32"),
        results=("turn", "next", "last", "p3", "filled"),
    )
    return graph(
        argument("x", TRIPS, 4),
        argument("to", TRIPS, 4),
        constant("start", 0),
        loop(
            *("start", "start", "start", "x", "to"),
            shapes=shapes,
            counters=((0, 0, 1), (1, 0, 1), (2, 0, 1)),
        ),
        op("z", "convert", (), "loop:2", dtype="float32"),
        results=("loop:4", "z"),
        functions={"condition": graph(inner_parameter("c")), "body": body},
    )


def test_integers_that_count_alike_are_one():
    made, (body,) = found(rows_of())
    # The counter, what is looked up in, and what is written.
    whole = next(one for one in made.ops if one.kind == "while")
    assert [(each.shape, each.dtype) for each in whole.outputs] == [
        ((), "int32"),
        ((TRIPS, 4), "float32"),
        ((TRIPS, 4), "float32"),
    ]
    assert kinds(body.ops) == ["add", "dynamic-slice", "tanh", "dynamic-update-slice"]
    assert made.results == ("loop:2", "z")


def test_an_integer_that_counted_is_a_constant_after_the_loop():
    made, _ = found(rows_of())
    by_name = {one.name: one for one in made.ops}
    (end,) = by_name["z"].inputs
    assert by_name[end].attributes["value"] == TRIPS
    assert by_name[end].outputs == (spec(dtype="int32"),)


def test_loops_that_may_end_earlier_stay():
    step = rows_of()
    ops = [
        Op(**{**vars(one), "attributes": {**one.attributes, "trip_count": None}})
        if one.kind == "while"
        else one
        for one in step.ops
    ]
    unknown = graph(*ops, results=step.results, functions=step.functions)
    assert with_repeats(unknown) == unknown


def stack(*, value="p1"):
    """A loop that adds a value to a list, and one that takes the list apart from its end."""
    shapes = [(), (4,), (TRIPS, 4), (4,)]
    push = graph(
        *carried(*shapes),
        constant("one", 1),
        constant("zero", 0),
        op("row", "reshape", (1, 4), value),
        op("filled", "dynamic-update-slice", (TRIPS, 4), "p2", "row", "p0", "zero"),
        op("next", "add", (), "p0", "one", dtype="int32"),
        op("state", "add", (4,), "p3", "p1"),
        results=("next", "p1", "filled", "state"),
    )
    taken = [(), (TRIPS, 4), (4,)]
    pop = graph(
        *carried(*taken),
        constant("one", 1),
        constant("zero", 0),
        op("next", "subtract", (), "p0", "one", dtype="int32"),
        op("row", "dynamic-slice", (1, 4), "p1", "next", "zero", slice_sizes=(1, 4)),
        op("value", "reshape", (4,), "row"),
        op("state", "multiply", (4,), "p2", "value"),
        results=("next", "p1", "state"),
    )
    functions = {"condition": graph(inner_parameter("c")), "push": push, "pop": pop}
    return graph(
        argument("x", 4),
        variable("w", 4),
        constant("start", 0),
        op("zeros", "broadcast", (TRIPS, 4), "start"),
        loop(
            *("start", "w", "zeros", "x"),
            shapes=shapes,
            counters=((0, 0, 1),),
            name="forward",
            body="push",
        ),
        loop(
            *("forward:0", "forward:2", "forward:3"),
            shapes=taken,
            counters=((0, TRIPS, -1),),
            name="backward",
            body="pop",
        ),
        results=("backward:2",),
        functions=functions,
    )


def test_a_list_of_one_value_is_the_value():
    made, (push, pop) = found(stack())
    assert [one.name for one in made.ops] == ["x", "w", "forward", "backward"]
    assert kinds(push.ops) == ["add"]
    assert kinds(pop.ops) == ["reshape", "reshape", "multiply"]
    forward, backward = made.ops[2:]
    assert forward.inputs == ("w", "x")
    assert set(backward.inputs) == {"w", "forward:1"}


def test_a_list_of_states_stays():
    made, (push, pop) = found(stack(value="p3"))
    assert kinds(push.ops) == ["reshape", "dynamic-update-slice", "add", "add"]
    assert kinds(pop.ops) == ["subtract", "dynamic-slice", "reshape", "multiply"]
    assert "zeros" in {one.name for one in made.ops}


def keeping_rows(*, read="p0", written="p0", trips=TRIPS):
    """A loop that takes a row of `x` each turn, and keeps it for whoever comes behind."""
    shapes = [(), (TRIPS, 4), (TRIPS, 4), (1, 4)]
    body = graph(
        *carried(*shapes),
        constant("one", 1),
        constant("zero", 0),
        op("row", "dynamic-slice", (1, 4), "p1", read, "zero", slice_sizes=(1, 4)),
        op("kept", "dynamic-update-slice", (TRIPS, 4), "p2", "row", written, "zero"),
        op("next", "add", (), "p0", "one", dtype="int32"),
        op("state", "add", (1, 4), "p3", "row"),
        results=("next", "p1", "kept", "state"),
    )
    return graph(
        argument("x", TRIPS, 4),
        argument("state", 1, 4),
        constant("start", 0),
        op("zeros", "broadcast", (TRIPS, 4), "start"),
        loop(
            *("start", "x", "zeros", "state"),
            shapes=shapes,
            trips=trips,
            counters=((0, 0, 1),),
        ),
        op("y", "tanh", (TRIPS, 4), "loop:2"),
        results=("y", "loop:3"),
        functions={"condition": graph(inner_parameter("c")), "body": body},
    )


def test_rows_that_are_taken_are_kept_where_they_are():
    made, (body,) = found(keeping_rows())
    assert kinds(body.ops) == ["dynamic-slice", "add", "add"]
    assert next(one for one in made.ops if one.name == "y").inputs == ("x",)
    assert "zeros" not in {one.name for one in made.ops}


@pytest.mark.parametrize(
    "ways", [{"read": "one"}, {"written": "one"}, {"trips": TRIPS - 1}], ids=str
)
def test_other_rows_than_those_that_are_taken_stay(ways):
    _, (body,) = found(keeping_rows(**ways))
    assert "dynamic-update-slice" in kinds(body.ops)


def test_what_does_something_besides_stays():
    """Nothing needs what is printed in each turn."""
    body = graph(
        *carried((4,), (4,)),
        op("next", "tanh", (4,), "p0"),
        Op("print", "PrintV2", (), stateful=True, inputs=("p1",)),
        op("other", "negate", (4,), "p1"),
        results=("next", "other"),
    )
    _, (made,) = found(
        graph(
            argument("x", 4),
            loop("x", "x", shapes=[(4,), (4,)]),
            results=("loop:0",),
            functions={"condition": graph(inner_parameter("c")), "body": body},
        )
    )
    assert kinds(made.ops) == ["tanh", "PrintV2", "negate"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # The whole of it, wherever that begins.
        (op("y", "dynamic-slice", (8, 4), "x", "i", "i", slice_sizes=(8, 4)), ("reshape", {})),
        (op("y", "dynamic-update-slice", (8, 4), "x", "x", "i", "i"), ("reshape", {})),
        # Rows 6 and 7, as 7 and 8 would end outside.
        (
            op("y", "dynamic-slice", (2, 4), "x", "seven", "zero", slice_sizes=(2, 4)),
            ("slice", {"start": (6, 0), "limit": (8, 4), "stride": (1, 1)}),
        ),
    ],
)
def test_slices_at_constant_places(before, after):
    given = [
        argument("x", 8, 4),
        op("i", "parameter", (), dtype="int32", role="argument"),
        constant("seven", 7),
        constant("zero", 0),
    ]
    made = with_repeats(graph(*given, before)).ops[-1]
    assert (made.kind, made.attributes) == after
    assert made.inputs == ("x",)


def test_slices_at_places_that_are_computed_stay():
    step = graph(
        argument("x", 8, 4),
        op("i", "parameter", (), dtype="int32", role="argument"),
        constant("zero", 0),
        op("y", "dynamic-slice", (2, 4), "x", "i", "zero", slice_sizes=(2, 4)),
    )
    assert with_repeats(step) == step


@pytest.fixture(scope="module")
def recurrent():
    """Compute sets of a training step in a loop, by how often they run."""
    model = keras.Sequential([keras.Input((5, 8)), layers.SimpleRNN(32), layers.Dense(4)])
    model.compile("sgd", "mse")
    report = profile(model, tf.TensorSpec((2, 5, 8)), tf.TensorSpec((2, 4)))
    return [one for one in report.model.program.compute_sets if one.repeat > 1]


def test_what_a_recurrent_layer_repeats(recurrent):
    """Of its weights no list is kept, and the state is written where it was."""
    assert {one.repeat for one in recurrent} == {5}
    names = [one.ops[-1].kind for one in recurrent if one.family == "dynamic slice"]
    # The input of each step is read, for the gradient again; the old and the new state are kept.
    assert names == ["dynamic-slice", *["dynamic-update-slice"] * 2, *["dynamic-slice"] * 3]
    integers = [one for one in recurrent if one.writes[0].spec.dtype == "int32"]
    assert [one.ops[-1].kind for one in integers] == ["add", "subtract"]
    assert {one.family for one in recurrent} == {
        *("dynamic slice", "elementwise", "dot", "reduce", "broadcast")
    }

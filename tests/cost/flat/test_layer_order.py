"""The layers of a forward pass, on programs built by hand."""

from hlo_graphs import argument, graph, op, training_step, variable

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.layer_order import crossing_bytes, layer_order


def forward_names(program):
    order = layer_order(program)
    pairs = zip(program.compute_sets, order.forward, strict=True)
    return [one.name for one, forward in pairs if forward]


def test_the_forward_pass_is_what_the_gradient_follows():
    program = flatten(training_step(2))
    assert forward_names(program) == ["z0", "h0", "z1", "h1", "loss"]
    assert layer_order(program).index == {("l0", ""): 0, ("l1", ""): 1, ("loss", ""): 2}


def test_zeros_of_the_gradient_are_no_gradient():
    """They read no activation, so the forward pass may share them."""
    program = flatten(
        graph(
            argument("x", 4),
            op("zero", "constant", (), value=0.0),
            op("zeros", "broadcast", (4,), "zero", backward=True),
            op("a", "maximum", (4,), "x", "zeros"),
            op("g", "multiply", (4,), "a", "zeros", backward=True),
            op("norm", "negate", (4,), "g"),
        )
    )
    assert forward_names(program) == ["a"]


def test_a_layer_comes_where_its_last_operation_does():
    """XLA draws random numbers first."""
    program = flatten(
        graph(
            argument("x", 4),
            variable("seed", 2),
            op("draw", "random", (4,), "seed", layer="dropout"),
            op("a", "tanh", (4,), "x", layer="dense"),
            op("b", "multiply", (4,), "a", "draw", layer="dropout"),
            op("c", "negate", (4,), "b"),
        )
    )
    assert layer_order(program).index == {("dense", ""): 0, ("dropout", ""): 1, ("", "c"): 2}


def test_a_layer_is_none_of_the_operations_that_are_called_as_it_is():
    program = flatten(
        graph(
            argument("x", 4),
            op("a", "tanh", (4,), "x", layer="c"),
            op("b", "tanh", (4,), "a", layer="d"),
            op("c", "negate", (4,), "b"),
        )
    )
    order = layer_order(program)
    assert [order.layer_of(one) for one in program.compute_sets] == [0, 1, 2]


def test_what_crosses():
    """h0 goes from the first layer to the second and, skipping it, to the third."""
    program = flatten(
        graph(
            argument("x", 100),
            op("h0", "tanh", (100,), "x", layer="a"),
            op("h1", "slice", (10,), "h0", layer="b"),
            op("h2", "pad", (100,), "h1", layer="c"),
            op("h3", "add", (100,), "h0", "h2", layer="c"),
            op("h4", "negate", (100,), "h3", layer="d"),
        )
    )
    order = layer_order(program)
    # After a: h0; after b: h0 and h1; after c: h3.
    assert crossing_bytes(program, order) == [400, 440, 400]

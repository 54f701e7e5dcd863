"""Branches, loops, scans and calls against what Python computes."""

import numpy as np
import pytest
import tensorflow as tf
from popart_graphs import (
    WAYS,
    check_gradient_of,
    gradients_of,
    graph,
    ipu_node,
    one,
    onnx_node,
    results_of,
    run,
)

from ipu_keras.popart.exceptions import popart_exception, poplar_exception

every_way = pytest.mark.parametrize("way", WAYS)
both_widths = pytest.mark.parametrize("narrows", [False, True])

TRUE, FALSE = np.array(True), np.array(False)


def f32(*values):
    return np.array(values, np.float32)


def doubling(keeps_on="keeps_on", declared=()):
    """A body that adds `x` of the graph around, and stacks twice what it carries.

    The condition that it returns is the one that it is given, or another tensor.
    """
    nodes = [
        onnx_node("Add", "carried x", "sum"),
        ipu_node("Scale", "sum", "twice", scale=2.0),
        ipu_node("Nop", keeps_on, "then"),
    ]
    return graph(nodes, "time keeps_on carried", "then sum twice", "body")


def flagged():
    """As `doubling`, going on while `flags` of the graph around has it."""
    nodes = [
        ipu_node("DynamicSlice", "flags time", "flag", axes=[0], sizes=[1]),
        *doubling().nodes[:2],
    ]
    return graph(nodes, "time keeps_on carried", "flag sum twice", "body")


def looped(body, inputs="most starts carried", **initialisers):
    return graph(
        [onnx_node("Loop", inputs, "last stacked", body=body)], "", "last stacked", **initialisers
    )


X = {"carried": f32(1, 2), "x": f32(10, 20)}


def after(count):
    """What a doubling loop computes with `X`."""
    sums = [X["carried"] + (n + 1) * X["x"] for n in range(count)]
    last = sums[-1] if sums else X["carried"]
    return last, np.reshape(np.array(sums, np.float32) * 2, (count, 2))


def check(main, given, count, way="traced", **options):
    for ours, expected in zip(run(main, given, way, **options), after(count), strict=True):
        assert (ours.dtype, ours.shape) == (np.float32, expected.shape)
        np.testing.assert_array_equal(ours, expected)


@every_way
@pytest.mark.parametrize(("count", "narrows"), [(0, False), (1, True), (3, False)])
def test_a_trip_count_that_is_known(count, narrows, way):
    """Its results have sizes that are known, in XLA too."""
    main = looped(doubling(), most=np.int64(count), starts=TRUE)
    check(main, X, count, way, narrows=narrows)
    check(looped(doubling(), "most - carried", most=np.array([count])), X, count, way)

    @tf.function(autograph=False)
    def function(given):
        return results_of(main, given, narrows=narrows)

    specs = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in X.items()}
    last, stacked = function.get_concrete_function(specs).outputs
    assert (last.shape, stacked.shape) == ((2,), (count, 2))


@pytest.mark.parametrize("way", ["eager", "traced"])
@pytest.mark.parametrize(
    ("most", "starts", "flags", "count"),
    [
        (5, True, [True, True, False, True], 3),
        (2, True, [True, True, False, True], 2),
        (5, False, [True, True, True, True], 0),
        (None, True, [True, True, True, False], 4),
        (2**63 - 1, True, [True, False, True, True], 2),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_a_loop_ends_by_its_condition(most, starts, flags, count, known, way):
    given = {**X, "flags": np.array(flags)}
    limits = {"starts": np.array(starts)}
    if most is not None:
        limits["most"] = np.int64(most)
    inputs = f"{'-' if most is None else 'most'} starts carried"
    if known:
        check(looped(flagged(), inputs, **limits), given, count, way)
    else:
        check(looped(flagged(), inputs), {**given, **limits}, count, way)


@pytest.mark.parametrize("way", ["eager", "traced"])
def test_a_body_that_is_certain_of_its_end(way):
    main = looped(doubling("never"), "most starts carried", most=np.int64(5), never=FALSE)
    check(main, {**X, "starts": TRUE}, 1, way)
    check(main, {**X, "starts": FALSE}, 0, way)
    check(looped(doubling("never"), "- starts carried", starts=TRUE, never=FALSE), X, 1, way)
    # A condition that is left out does not count, whatever the body says.
    check(looped(doubling("never"), "most - carried", most=np.int64(3), never=FALSE), X, 3, way)


@pytest.mark.parametrize("way", ["eager", "traced"])
def test_a_trip_count_that_is_a_tensor(way):
    check(looped(doubling(), "most - carried"), {**X, "most": np.int64(3)}, 3, way)
    check(looped(doubling(), "most - carried"), {**X, "most": np.int64(-3)}, 0, way)


@every_way
@both_widths
def test_the_number_of_an_iteration(narrows, way):
    """0 + 1 + 2 + 3, in the type of the model or that of a session."""
    body = graph([onnx_node("Add", "carried time", "sum")], "time on carried", "on sum time")
    main = looped(body, most=np.int64(4), starts=TRUE, carried=np.int64(0))
    last, stacked = run(main, {}, way, narrows=narrows)
    assert last == 6
    np.testing.assert_array_equal(stacked, [0, 1, 2, 3])
    assert last.dtype == stacked.dtype == (np.int32 if narrows else np.int64)


def test_scalars_that_a_body_declares_as_vectors():
    body = graph([onnx_node("Add", "carried time", "sum")], "time on carried", "on sum time")
    inputs = [body.inputs[0].__class__(name, None, (1,)) for name in ("time", "on")]
    body = body.__class__(body.name, body.nodes, (*inputs, body.inputs[2]), body.outputs)
    last, stacked = run(looped(body, most=np.int64(3), starts=TRUE), {"carried": np.array([1])})
    np.testing.assert_array_equal(last, [4])
    np.testing.assert_array_equal(stacked, [[0], [1], [2]])


def test_a_shape_that_changes():
    """After the first iteration, it is that of `x`."""
    given = {"carried": f32(1), "x": f32(10, 20)}
    last = run(looped(doubling(), most=np.int64(2), starts=TRUE), given)[0]
    np.testing.assert_array_equal(last, [21, 41])


@pytest.mark.parametrize("way", ["traced", "xla"])
def test_gradients_of_loops(way):
    """Of what is carried, and of what comes from around it."""
    body = graph(
        [
            ipu_node("Gelu", "carried", "activated"),
            ipu_node("Atan2", "activated w", "then"),
            onnx_node("Add", "then w", "element"),
        ],
        "time on carried",
        "on then element",
    )
    main = graph(
        [
            onnx_node("Loop", "most starts x", "last stacked", body=body),
            ipu_node("L1", "stacked", "first", **{"lambda": 1.0}, reduction="Sum"),
            ipu_node("IdentityLoss", "last", "second", reduction="Sum"),
            onnx_node("Add", "first second", "loss"),
        ],
        "x w",
        "loss",
        most=np.int64(3),
        starts=TRUE,
    )
    given = {"x": f32(0.3, 0.7), "w": f32(0.5, 1.5)}
    check_gradient_of(main, given)

    ours = gradients_of(main, given, way)

    def reference(x, w):
        loss = 0.0
        for _ in range(3):
            x = tf.math.atan2(tf.nn.gelu(x, approximate=True), w)
            loss += tf.reduce_sum(tf.abs(x + w))
        return loss + tf.reduce_sum(x)

    x, w = (tf.constant(value) for value in given.values())
    with tf.GradientTape() as tape:
        tape.watch([x, w])
        loss = reference(x, w)
    for name, expected in zip("xw", tape.gradient(loss, [x, w]), strict=True):
        np.testing.assert_allclose(ours[name], expected, rtol=1e-5)


@every_way
def test_a_loop_in_a_loop_sees_both_around_it(way):
    inner = graph([onnx_node("Add", "c y", "d"), onnx_node("Add", "d x", "e")], "t on c", "on e")
    outer = graph(
        [
            onnx_node("Add", "carried x", "y"),
            onnx_node("Loop", "two starts y", "z", body=inner),
        ],
        "time on carried",
        "on z y",
    )
    main = looped(outer, two=np.int64(2), most=np.int64(2), starts=TRUE)
    value, stacked = 1.0, []
    for _ in range(2):
        stacked.append(value + 10)
        value = stacked[-1] * 3 + 20
    last, ys = run(main, {"carried": f32(1), "x": f32(10)}, way)
    np.testing.assert_array_equal(last, [value])
    np.testing.assert_array_equal(ys, np.reshape(stacked, (2, 1)))


@pytest.mark.parametrize(
    ("main", "text"),
    [
        (looped(doubling(), "- - carried"), "without a maximum trip count and without a condition"),
        (looped(doubling(), "- starts carried", starts=TRUE), "The loop never ends"),
        (
            looped(graph([], "time on carried", "on"), most=np.int64(1), starts=TRUE),
            r"has to return 2 tensors or more.*Received: 1 outputs",
        ),
        (
            looped(graph([], "time on", "on"), most=np.int64(1), starts=TRUE),
            r"has 2 inputs \(time, on\).*Received: 3 tensors",
        ),
        (
            looped(graph([], "time on carried", "on time x"), most=np.int64(1), starts=TRUE),
            r"of one type and rank. Received: 'time' of int64 and shape \[\].*float32",
        ),
    ],
)
def test_errors_of_loops(main, text):
    with pytest.raises(popart_exception, match=f"^In Loop 'last': (?s:.*){text}"):
        run(main, X)


BRANCHES = {
    "then_branch": graph([onnx_node("Add", "y x", "z")], "", "z y"),
    "else_branch": graph([ipu_node("Scale", "x", "z", scale=3.0)], "", "z x"),
}
CHOICE = graph(
    [
        ipu_node("Scale", "x", "y", scale=2.0),
        onnx_node("If", "condition x", "a b", **BRANCHES),
    ],
    "",
    "a b y",
)


@every_way
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("condition", [True, False, [True]])
def test_branches_see_what_is_around(condition, known, way):
    x, condition = f32(1, 2), np.array(condition)
    if known:
        main = graph(CHOICE.nodes, "", "a b y", condition=condition)
        a, b, y = run(main, {"x": x}, way)
    else:
        a, b, y = run(CHOICE, {"x": x, "condition": condition}, way)
    np.testing.assert_array_equal(a, 3 * x)
    np.testing.assert_array_equal(b, 2 * x if condition.all() else x)
    np.testing.assert_array_equal(y, 2 * x)


@both_widths
def test_branches_with_what_is_known(narrows):
    """One computes an integer, and the other has it from the start."""
    main = graph(
        [
            onnx_node(
                "If",
                "condition",
                "y",
                then_branch=graph([], "", "seven", seven=np.int64(7)),
                else_branch=graph([onnx_node("Add", "n n", "z")], "", "z"),
            )
        ],
        "",
        "y",
    )
    for condition, expected in ((True, 7), (False, 10)):
        given = {"condition": np.array(condition), "n": np.int64(5)}
        (y,) = run(main, given, narrows=narrows)
        assert (y, y.dtype) == (expected, np.int32 if narrows else np.int64)


@pytest.mark.parametrize("condition", [True, False])
def test_gradients_of_branches(condition):
    check_gradient_of(graph(CHOICE.nodes, "", "a", condition=np.array(condition)), {"x": f32(1, 2)})
    environment = {"condition": tf.constant(condition), "x": tf.constant([1.0, 2.0])}
    with tf.GradientTape() as tape:
        tape.watch(environment["x"])
        a = tf.function(lambda given: results_of(CHOICE, given)[0])(environment)
    np.testing.assert_array_equal(tape.gradient(a, environment["x"]), [3, 3])


def test_errors_of_branches():
    branches = {**BRANCHES, "else_branch": graph([], "", "x")}
    main = graph([onnx_node("If", "condition", "a b", **branches)], "", "a b")
    with pytest.raises(popart_exception, match="Received: 2 of `then_branch`, 1 of `else_branch`"):
        run(main, {"condition": TRUE, "x": f32(1)})


def scan_body():
    """Sums what it scans, and stacks sums, and elements of rank 1 times three."""
    return graph(
        [onnx_node("Add", "state element", "sum"), ipu_node("Scale", "element", "e3", scale=3.0)],
        "state element",
        "sum sum e3",
    )


def scanned(**attributes):
    node = onnx_node("Scan", "state xs", "last sums es", body=scan_body(), **attributes)
    return graph([node], "", "last sums es")


@every_way
@pytest.mark.parametrize(
    ("opset", "axis", "backward", "backward_out"),
    [(9, 0, 0, 0), (9, 1, 1, 0), (11, -1, 0, 1), (11, 1, 1, 1)],
)
def test_scans(backward, backward_out, axis, opset, way):
    xs = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    state = f32(*[10] * xs.shape[1 - axis % 2])
    steps = np.moveaxis(xs, axis, 0)[:: -1 if backward else 1]
    sums = state + np.cumsum(steps, axis=0)
    main = scanned(
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[backward],
        scan_output_axes=[axis, 0],
        scan_output_directions=[backward_out, 0],
    )
    last, ours, elements = run(main, {"state": state, "xs": xs}, way, opset)
    np.testing.assert_array_equal(last, sums[-1])
    np.testing.assert_array_equal(ours, np.moveaxis(sums[:: -1 if backward_out else 1], 0, axis))
    np.testing.assert_array_equal(elements, 3 * steps)


@every_way
@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("lengths", [None, [3, 1]])
def test_scans_with_a_batch(lengths, backward, way):
    """Of each sample as many elements as its length says, the others as if they were not there."""
    xs = np.arange(1, 13, dtype=np.float32).reshape(2, 3, 2)
    state = np.array([[100, 200], [300, 400]], np.float32)
    inputs = "lengths state xs" if lengths else "- state xs"
    node = onnx_node(
        "Scan",
        inputs,
        "last sums es",
        body=scan_body(),
        num_scan_inputs=1,
        **({"directions": [1]} if backward else {}),
    )
    given = {"state": state, "xs": xs}
    if lengths:
        given["lengths"] = np.array(lengths, np.int64)
    last, sums, elements = run(graph([node], "", "last sums es"), given, way, opset=8)
    for sample, length in enumerate(lengths or [3, 3]):
        steps = xs[sample, :length][:: -1 if backward else 1]
        expected = state[sample] + np.cumsum(steps, axis=0)
        np.testing.assert_array_equal(last[sample], expected[-1])
        np.testing.assert_array_equal(sums[sample, :length], expected)
        np.testing.assert_array_equal(sums[sample, length:], 0)
        np.testing.assert_array_equal(elements[sample, :length], 3 * steps)
        np.testing.assert_array_equal(elements[sample, length:], 0)


def test_gradients_of_scans():
    body = graph(
        [onnx_node("Add", "state element", "sum"), ipu_node("Atan2", "sum w", "then")],
        "state element",
        "then then",
    )
    main = graph(
        [onnx_node("Scan", "s xs", "last all", body=body, num_scan_inputs=1)], "", "all last"
    )
    given = {
        "s": f32(0.1, 0.2),
        "xs": np.array([[0.3, 0.4], [0.5, 0.6]], np.float32),
        "w": f32(1, 2),
    }
    check_gradient_of(main, given)
    traced, compiled = (gradients_of(main, given, way) for way in ("traced", "xla"))
    for name in given:
        np.testing.assert_allclose(compiled[name], traced[name], rtol=1e-5)


def test_a_batch_whose_size_is_open():
    """As functions may be called; what is scanned along it is too."""
    main = scanned(num_scan_inputs=1)
    traced = tf.function(lambda given: results_of(main, given), autograph=False)
    specs = {"state": tf.TensorSpec([2]), "xs": tf.TensorSpec([None, 2])}
    last, *_ = traced.get_concrete_function(specs)({"state": tf.zeros(2), "xs": tf.ones((5, 2))})
    np.testing.assert_array_equal(last, [5, 5])


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"num_scan_inputs": 0}, "Received: num_scan_inputs=0 of 2 inputs"),
        ({"num_scan_inputs": 3}, "Received: num_scan_inputs=3 of 2 inputs"),
        (
            {"num_scan_inputs": 1, "scan_input_axes": [2]},
            r"of the ranks \[2\]. Received: scan_input_axes=\[2\]",
        ),
        (
            {"num_scan_inputs": 1, "scan_input_directions": [2]},
            r"`scan_input_directions` has to have 1 directions.*Received: .*=\[2\]",
        ),
        ({"num_scan_inputs": 1, "scan_output_axes": [0]}, r"Received: scan_output_axes=\[0\]"),
    ],
)
def test_errors_of_scans(attributes, text):
    with pytest.raises(popart_exception, match=f"^In Scan 'last': .*{text}"):
        run(scanned(**attributes), {"state": f32(1, 2), "xs": np.ones((3, 2), np.float32)})


@every_way
def test_calls(way):
    callee = graph([onnx_node("Add", "a b", "c"), onnx_node("Add", "c x", "d")], "a b", "d a")
    main = graph(
        [
            ipu_node("Call", "x y", "p q", callee=callee),
            ipu_node("Call", "p one", "r s", callee=callee),
        ],
        "",
        "r s q",
        one=np.float32(1),
    )
    r, s, q = run(main, {"x": f32(1, 2), "y": f32(10, 20)}, way)
    np.testing.assert_array_equal(s, [12, 24])
    np.testing.assert_array_equal(r, [14, 27])
    np.testing.assert_array_equal(q, [1, 2])


def test_what_is_called_knows_what_is_known():
    """A number of iterations can be handed on, and an image keeps its channels last."""
    body = graph([onnx_node("Add", "c c", "d")], "time on c", "on d")
    callee = graph([onnx_node("Loop", "most - c", "d", body=body)], "most c", "d")
    main = graph([ipu_node("Call", "most x", "y", callee=callee)], "", "y", most=np.int64(3))
    np.testing.assert_array_equal(run(main, {"x": f32(1, 2)}, "xla")[0], [8, 16])
    convolutions = graph(
        [ipu_node("Call", "z w", "y", callee=graph([onnx_node("Conv", "a b", "c")], "a b", "c"))],
        "",
        "y",
    )
    nodes = (onnx_node("Conv", "x w", "z"), *convolutions.nodes)
    given = {"x": np.ones((1, 2, 4, 5), np.float32), "w": np.ones((2, 2, 1, 1), np.float32)}
    function = tf.function(lambda tensors: results_of(graph(nodes, "", "y"), tensors))
    traced = function.get_concrete_function({k: tf.constant(v) for k, v in given.items()}).graph
    kinds = [op.type for op in traced.get_operations()]
    # One of the image, one of the weights for both, one of the result.
    assert kinds.count("Transpose") == 3


def test_a_tensor_that_is_handed_through_has_a_gradient_of_its_own():
    main = graph([ipu_node("Call", "x", "y", callee=graph([], "a", "a"))], "", "y x")
    x = tf.constant([1.0])
    y, same = results_of(main, {"x": x})
    assert y is not same


def test_errors_of_calls():
    with pytest.raises(popart_exception, match=r"^In Call 'y0': The graph 'f' has 2 inputs \(a, b"):
        one("Call", f32(1), callee=graph([], "a b", "a", "f"))


MISFIT = {
    "then_branch": graph([onnx_node("Identity", "x", "r")], "", "r", "speech"),
    "else_branch": graph([onnx_node("MatMul", "x w", "r")], "", "r", "music"),
}


@every_way
def test_a_branch_that_does_not_fit_only_matters_if_it_is_taken(way):
    main = graph([onnx_node("If", "c", "y", **MISFIT)], "c x", "y", w=np.ones((5, 2), np.float32))
    x = f32([1, 2, 3])
    if way == "xla":
        pytest.skip("What ends a program calls Python, for which sessions use no XLA.")
    np.testing.assert_array_equal(run(main, {"c": TRUE, "x": x}, way)[0], x)
    text = "The branch 'music' of If 'y' was taken, which cannot be computed for the shapes that "
    with pytest.raises((poplar_exception, tf.errors.OpError), match=text):
        run(main, {"c": FALSE, "x": x}, way)


def test_branches_that_both_do_not_fit_are_refused():
    branches = dict.fromkeys(MISFIT, MISFIT["else_branch"])
    main = graph([onnx_node("If", "c", "y", **branches)], "c x", "y", w=np.ones((5, 2), np.float32))
    with pytest.raises(popart_exception, match="In MatMul 'r': "):
        run(main, {"c": TRUE, "x": f32([1, 2, 3])})


def test_only_the_branch_that_is_known_is_computed():
    main = graph(
        [onnx_node("If", "c", "y", **MISFIT)], "x", "y", c=TRUE, w=np.ones((5, 2), np.float32)
    )
    np.testing.assert_array_equal(run(main, {"x": f32([1, 2, 3])}, "xla")[0], f32([1, 2, 3]))

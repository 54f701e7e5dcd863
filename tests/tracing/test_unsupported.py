"""Operations that XLA lacks, in the graphs of the functions that have them."""

import pytest
import tensorflow as tf
from hlo_graphs import missing_references

from ipu_keras.cost.passes import model_graph
from ipu_keras.ir import Op, TensorSpec
from ipu_keras.machine.target import target_named
from ipu_keras.profiling.models import cached_graph
from ipu_keras.report.report import Report
from ipu_keras.tracing.hlo import hlo_graph
from ipu_keras.tracing.lowering import LoweringError
from ipu_keras.tracing.unsupported import _in_order, cut_unsupported

X = tf.TensorSpec((4, 3))
NEVER = "nothing here is executed"


def trace(function, *specs):
    return tf.function(function, autograph=False).get_concrete_function(*specs)


def read(function, *specs):
    graph = hlo_graph(trace(function, *specs))
    assert missing_references(graph) == []
    return graph


def op(graph, name):
    (found,) = [op for op in graph.ops if op.name == name]
    return found


def python(x, shape=(4, 3), name="python"):
    """What only Python can compute."""
    result = tf.numpy_function(lambda _: pytest.fail(NEVER), [x], tf.float32, name=name)
    result.set_shape(shape)
    return result


def test_golden():
    """Before, the operation, after: in this order, with shapes, layer and what each takes."""
    weights = tf.Variable(tf.ones((3, 3)), name="weights")

    def step(x):
        with tf.name_scope("model"), tf.name_scope("layer"):
            return tf.tanh(python(x @ weights))

    graph = read(step, X)
    lacking = op(graph, "model/layer/python")
    assert (lacking.kind, lacking.layer) == ("PyFunc", "model/layer")
    assert lacking.outputs == (TensorSpec((4, 3), "float32"),)
    assert lacking.attributes == {"not_lowered": True}
    kinds = [op.kind for op in graph.ops if op.kind not in ("parameter", "reshape", "transpose")]
    assert kinds == ["dot", "PyFunc", "tanh"]
    assert [p.attributes.get("name") for p in graph.ops if p.kind == "parameter"] == [
        None,
        "weights",
    ]


def test_its_cost_is_guessed_and_the_report_says_so():
    graph = read(lambda x: python(x) + 1.0, X)
    report = Report.of(model_graph("step", graph, target_named("gc200")))
    assert report.not_lowered == ("PyFunc",)
    (row,) = [row for row in report.rows if row.family == "unknown"]
    assert row.confidence == "guessed"
    assert row.cycles > 0
    assert "Guessed, because XLA cannot lower them: PyFunc" in str(report)
    assert report.to_dict()["not_lowered"] == ["PyFunc"]


def test_a_function_that_xla_compiles_has_none():
    concrete = trace(lambda x: tf.tanh(x), X)
    assert cut_unsupported(concrete) is None
    report = Report.of(model_graph("step", hlo_graph(concrete), target_named("gc200")))
    assert report.not_lowered == ()
    assert "Guessed" not in str(report)


def test_variables_are_written_as_before():
    """The new value's place among the results does not count what was added in between."""
    total = tf.Variable(tf.zeros((4, 3)), name="total")

    def step(x):
        total.assign_add(python(x))
        return tf.reduce_sum(x)

    graph = read(step, X)
    (variable,) = [op for op in graph.ops if op.attributes.get("role") == "variable"]
    assert variable.attributes["result"] == 1
    assert len(graph.results) == 2
    add = op(graph, "AssignAddVariableOp/add")
    assert variable.name in add.inputs


def test_several_that_depend_on_each_other():
    def step(x, unused):
        first = python(x, name="first")
        second = python(first, shape=(2,), name="second")
        return python(first * 2.0, name="third"), second

    graph = read(step, X, X)
    names = [op.name for op in graph.ops]
    assert names.index("first") < names.index("second")
    assert op(graph, "second").inputs == ("first",)
    source = op(graph, graph.results[1])
    while source.kind == "reshape":
        source = op(graph, source.inputs[0])
    assert source.name == "second"
    roles = [op.attributes["role"] for op in graph.ops if op.kind == "parameter"]
    assert roles == ["argument", "argument"]


def test_one_without_results():
    """A print takes a text, which is no array, from an operation that takes one."""

    def step(x):
        tf.print(tf.reduce_sum(x))
        return x * 2.0

    graph = read(step, X)
    assert {"StringFormat", "PrintV2"} <= {op.kind for op in graph.ops}
    assert op(graph, "PrintV2").outputs == ()
    assert len(op(graph, "StringFormat").inputs) == 1


def test_one_within_a_loop_takes_the_loop_with_it():
    def step(x):
        loop = tf.while_loop(lambda k, y: k < 3, lambda k, y: (k + 1, python(y)), [0, x])
        return loop[1] + 1.0

    kinds = {op.kind for op in read(step, X).ops}
    assert "While" in kinds or "StatelessWhile" in kinds
    assert "while" not in kinds


def test_a_result_of_unknown_shape_is_refused():
    message = (
        r"XLA cannot lower PyFunc, .* with `set_shape`\. Received: 'PyFunc' of shape <unknown>"
    )
    with pytest.raises(LoweringError, match=message):
        hlo_graph(trace(lambda x: tf.numpy_function(lambda v: v, [x], tf.float32) + 1.0, X))


def test_a_draw_that_it_is_a_part_of_is_divided():
    """One operation for the whole draw would take its own result; its key is one by itself."""
    spec = tf.TensorSpec((2,), tf.int32)

    def draw(seed):
        gamma = tf.random.stateless_gamma((5,), seed, 0.5)
        return gamma, tf.random.stateless_normal((5,), seed)

    graph = hlo_graph(tf.function(draw).get_concrete_function(spec))
    assert [op.name for op in graph.ops if op.attributes.get("not_lowered")] == [
        "stateless_random_gamma/StatelessRandomGammaV3"
    ]
    draws = [(op.name, op.attributes["distribution"]) for op in graph.ops if op.kind == "random"]
    assert draws == [
        ("stateless_random_gamma/StatelessRandomGetKeyCounter/random", "other"),
        ("stateless_random_normal/random", "normal"),
    ]
    order = {op.name: position for position, op in enumerate(graph.ops)}
    for op in graph.ops:
        assert all(order[name.partition(":")[0]] < order[op.name] for name in op.inputs)


def test_what_would_need_its_own_result_cannot_be_put_back():
    ops = [Op("a", "add", (), inputs=("b",)), Op("b", "add", (), inputs=("a:1",))]
    with pytest.raises(LoweringError, match=r"would need its own result\. Received: '[ab]'"):
        _in_order(ops)


def kinds_left(graph):
    return [op.kind for op in graph.ops if op.attributes.get("not_lowered")]


def test_what_xla_refuses_for_its_values_is_guessed():
    """XLA has kernels of all of them. Of two, it names the first, and then the other one."""

    def step(x):
        with tf.name_scope("layer"):
            first = tf.reduce_sum(tf.range(tf.reduce_max(x)))
            second = tf.reduce_sum(tf.range(tf.reduce_min(x)), name="second")
        return x + first * second

    graph = read(step, tf.TensorSpec((4,), tf.int32))
    # What is of no known shape goes to a sum, whose result has one.
    assert kinds_left(graph) == ["Range", "Sum", "Range", "Sum"]
    second = op(graph, "layer/second")
    assert (second.layer, second.outputs) == ("layer", (TensorSpec((), "int32"),))
    others = [op.kind for op in graph.ops if not op.attributes.get("not_lowered")]
    assert others.count("reduce") == 2
    assert {"multiply", "add"} <= set(others)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        # In a loop, a branch and a function: whole, as XLA says which of the outermost it is in.
        (lambda x: tf.while_loop(lambda k, _: k < 3, sum_of_range, [0, x])[1], ["StatelessWhile"]),
        (lambda x: tf.cond(x[0] > 0, lambda: sum_of_range(0, x)[1], lambda: x), ["StatelessIf"]),
        (lambda x: tf.function(sum_of_range)(0, x)[1], ["PartitionedCall"]),
    ],
)
def test_what_calls_what_xla_refuses_is_taken_out_whole(function, expected):
    graph = read(lambda x: function(x) * 2, tf.TensorSpec((4,), tf.int32))
    assert kinds_left(graph) == expected
    assert "multiply" in {op.kind for op in graph.ops}


def sum_of_range(k, x):
    return k + 1, x + tf.reduce_sum(tf.range(tf.reduce_max(x)))


def test_texts_are_handed_on_among_what_is_cut_out():
    """XLA has a kernel of an identity, but none that takes texts."""
    graph = read(
        lambda x: tf.strings.length(tf.identity(tf.strings.as_string(x))) + 1,
        tf.TensorSpec((4,), tf.int32),
    )
    assert kinds_left(graph) == ["AsString", "Identity", "StringLength"]


def test_tables_are_guessed():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), 0)
    function = trace(lambda x: table.lookup(x) * 2, tf.TensorSpec((4,), tf.int32))
    graph = cached_graph(function)
    assert kinds_left(graph) == ["LookupTableFindV2"]
    assert missing_references(graph) == []


def test_a_text_as_a_result_is_refused():
    message = "XLA cannot lower AsString, and an IPU cannot return its result of type string"
    with pytest.raises(LoweringError, match=message):
        hlo_graph(trace(lambda x: tf.identity(tf.strings.as_string(x)), X))

"""From traced functions to graphs of the compiler."""

import pytest
import tensorflow as tf

from ipu_keras.ir import Graph, TensorSpec
from ipu_keras.tracing import graph_of

X = tf.TensorSpec((8, 3), tf.float32)


def trace(function, *specs):
    return tf.function(function, autograph=False).get_concrete_function(*specs)


def read(function, *specs):
    return graph_of(trace(function, *specs))


def ops(graph, kind):
    """All operations of a kind, those of bodies included."""
    return [op for op in graph.walk() if op.kind == kind]


def op(graph, kind):
    (found,) = ops(graph, kind)
    return found


@pytest.fixture
def variable():
    return tf.Variable(tf.ones((3, 4)))


# -- one function --------------------------------------------------------------


def test_ops_in_the_order_of_tracing():
    graph = read(lambda x: tf.nn.relu(tf.matmul(x, x, transpose_b=True)), X)
    assert isinstance(graph, Graph)
    assert [op.kind for op in graph.ops] == ["Placeholder", "MatMul", "Relu", "Identity"]
    assert graph.functions == {}


def test_what_an_operation_takes(variable):
    def function(x):
        first, second = tf.unstack(x)
        variable.assign_add(first)
        return variable + second

    graph = read(function, tf.TensorSpec((2, *variable.shape)))
    unstack, add = op(graph, "Unpack"), op(graph, "AddV2")
    assert unstack.inputs == ("x",)
    assert add.inputs[1] == f"{unstack.name}:1"
    write = op(graph, "AssignAddVariableOp")
    assert write.inputs[1] == f"{unstack.name}:0"
    (before,) = op(graph, "ReadVariableOp").after
    assert before == write.name


def test_the_name_is_that_of_the_function():
    def train_step(x):
        return x

    concrete = trace(train_step, X)
    name = graph_of(concrete).name
    assert isinstance(name, str)
    assert name == concrete.function_def.signature.name
    assert "train_step" in name


def test_specs_of_outputs():
    def step(x):
        values, indices = tf.math.top_k(x, k=2)
        return values, indices, tf.cast(x, tf.float16) > 0

    graph = read(step, X)
    assert op(graph, "TopKV2").outputs == (
        TensorSpec((8, 2), "float32"),
        TensorSpec((8, 2), "int32"),
    )
    assert op(graph, "Cast").outputs == (TensorSpec((8, 3), "float16"),)
    assert op(graph, "Greater").outputs == (TensorSpec((8, 3), "bool"),)


def test_dimensions_that_tracing_does_not_find():
    graph = read(lambda x: tf.where(x > 0), X)
    assert op(graph, "Where").outputs == (TensorSpec((-1, 2), "int64"),)
    unknown = read(lambda x: x + 1, tf.TensorSpec(None, tf.float32))
    assert op(unknown, "AddV2").outputs == (TensorSpec((-1,), "float32"),)


def test_names_keep_their_scopes():
    def step(x):
        with tf.name_scope("encoder"), tf.name_scope("dense"):
            return tf.nn.relu(x)

    assert op(read(step, X), "Relu").name == "encoder/dense/Relu"


def test_equal_functions_give_equal_ops():
    def step(x):
        return tf.reduce_sum(tf.nn.relu(x))

    assert read(step, X).ops == read(step, X).ops


# -- state ---------------------------------------------------------------------


def test_reading_a_variable_is_no_state(variable):
    graph = read(lambda x: x @ variable + tf.gather(variable, 0), X)
    assert ops(graph, "ReadVariableOp")
    assert op(graph, "ResourceGather")
    assert not [op for op in graph.walk() if op.stateful]


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (lambda v: v.assign(tf.zeros((3, 4))), "AssignVariableOp"),
        (lambda v: v.assign_add(tf.ones((3, 4))), "AssignAddVariableOp"),
        (lambda v: v.scatter_add(tf.IndexedSlices(tf.ones((1, 4)), [0])), "ResourceScatterAdd"),
    ],
)
def test_writing_a_variable_is_state(variable, write, kind):
    def step(x):
        write(variable)
        return x

    assert op(read(step, X), kind).stateful


@pytest.mark.parametrize(
    ("draw", "kind", "stateful"),
    [
        (lambda: tf.random.uniform((3,)), "RandomUniform", True),
        (lambda: tf.random.stateless_uniform((3,), (1, 2)), "StatelessRandomUniformV2", False),
    ],
)
def test_random_draws(draw, kind, stateful):
    assert op(read(lambda x: (x, draw()), X), kind).stateful is stateful


def test_python_functions_are_state():
    graph = read(lambda x: tf.py_function(lambda y: y, [x], tf.float32), X)
    assert op(graph, "EagerPyFunc").stateful


# -- functions that are called -------------------------------------------------


def loop(body):
    def step(x):
        _, result = tf.while_loop(
            lambda k, _: k < 3, lambda k, y: (k + 1, body(y)), [0, x], maximum_iterations=3
        )
        return result

    return step


def test_a_loop():
    graph = read(loop(tf.nn.relu), X)
    while_op = next(op for op in graph.ops if op.kind in ("While", "StatelessWhile"))
    assert not while_op.stateful
    assert len(while_op.body) == 2
    assert set(while_op.body) == set(graph.functions)
    assert op(graph, "Relu").outputs == (TensorSpec((8, 3), "float32"),)
    assert ops(graph, "Less")  # of the condition


@pytest.mark.parametrize(("most", "expected"), [(5, [{"turns": 5}] * 2), (None, [{}] * 2)])
def test_turns_of_loops_and_of_their_gradients(most, expected):
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(
                lambda y: tf.reduce_sum(y) < 9.0,
                lambda y: (2.0 * y,),
                (x,),
                maximum_iterations=most,
            )[0]
        return tape.gradient(y, x)

    graph = read(function, X)
    loops = [op for op in graph.ops if op.kind.endswith("While")]
    assert [dict(loop.attributes) for loop in loops] == expected


def test_a_loop_that_writes(variable):
    def body(y):
        variable.assign_add(tf.ones((3, 4)))
        return y

    graph = read(loop(body), X)
    # The loop says nothing of its own: what it does are the ops of its body.
    assert not op(graph, "While").stateful
    assert op(graph, "AssignAddVariableOp").stateful


@pytest.mark.parametrize("writes", [False, True])
def test_branches(variable, writes):
    def then(x):
        if writes:
            variable.assign_add(tf.ones((3, 4)))
        return tf.nn.relu(x)

    graph = read(lambda x: tf.cond(x[0, 0] > 0, lambda: then(x), lambda: tf.nn.tanh(x)), X)
    branch = next(op for op in graph.ops if op.kind in ("If", "StatelessIf"))
    assert len(branch.body) == 2
    assert not branch.stateful
    assert op(graph, "Relu")
    assert op(graph, "Tanh")
    assert bool([op for op in graph.walk() if op.stateful]) is writes


def test_a_switch():
    branches = [tf.nn.relu, tf.nn.tanh, tf.nn.sigmoid]
    graph = read(
        lambda x, k: tf.switch_case(k, [lambda f=f: f(x) for f in branches]),
        X,
        tf.TensorSpec((), tf.int32),
    )
    case = next(op for op in graph.ops if op.kind in ("Case", "StatelessCase"))
    assert len(case.body) == 3
    assert op(graph, "Tanh")


def test_calls_within_calls(variable):
    @tf.function(autograph=False)
    def inner(x):
        variable.assign_add(tf.ones((3, 4)))
        return tf.nn.relu(x)

    @tf.function(autograph=False)
    def outer(x):
        return inner(x) + inner(2 * x)

    graph = read(lambda x: outer(x), X)
    calls = ops(graph, "StatefulPartitionedCall")
    assert len(calls) == 3
    assert not any(call.stateful for call in calls)
    assert len(graph.functions) == 2
    # Called twice, listed once.
    assert op(graph, "AssignAddVariableOp").stateful
    assert op(graph, "Relu")


def test_functions_of_functions_are_in_one_table():
    graph = read(loop(loop(loop(tf.nn.relu))), X)
    assert len(graph.functions) == 6
    assert all(called.functions == {} for called in graph.functions.values())
    assert len(ops(graph, "While") + ops(graph, "StatelessWhile")) == 3
    assert op(graph, "Relu")


def test_a_function_called_inside_and_outside_a_loop():
    @tf.function(autograph=False)
    def shared(x):
        return tf.nn.relu(x)

    graph = read(lambda x: loop(shared)(x) + shared(x), X)
    assert op(graph, "Relu")


# -- gradients -----------------------------------------------------------------


def test_gradients(variable):
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.relu(x @ variable))
        gradient = tape.gradient(loss, variable)
        variable.assign_sub(0.1 * gradient)
        return loss

    graph = read(step, X)
    assert len(ops(graph, "MatMul")) == 2
    assert op(graph, "ReluGrad").outputs == (TensorSpec((8, 4), "float32"),)
    assert [op.kind for op in graph.walk() if op.stateful] == ["AssignSubVariableOp"]


@pytest.mark.parametrize("nested", [loop, lambda f: tf.function(f, autograph=False)])
def test_gradients_of_called_functions(nested):
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(nested(tf.nn.tanh)(x))
        return tape.gradient(loss, x)

    graph = read(step, X)
    assert ops(graph, "Tanh")
    assert ops(graph, "TanhGrad")


@pytest.mark.parametrize("strides", [1, 2])
def test_gradients_of_convolutions(strides):
    kernel = tf.Variable(tf.ones((3, 3, 1, 2)))

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.nn.conv2d(x, kernel, strides, "SAME"))
        return loss, tape.gradient(loss, [x, kernel])

    graph = read(step, tf.TensorSpec((2, 8, 8, 1), tf.float32))
    assert op(graph, "Conv2D").outputs == (
        TensorSpec((2, 8 // strides, 8 // strides, 2), "float32"),
    )
    assert op(graph, "Conv2DBackpropInput").outputs == (TensorSpec((2, 8, 8, 1), "float32"),)
    assert op(graph, "Conv2DBackpropFilter").outputs == (TensorSpec((3, 3, 1, 2), "float32"),)


def test_what_nothing_needs_is_not_there():
    """Neither in the function nor in a loop; what is written is needed."""
    weight = tf.Variable(1.0)

    def step(x):
        tf.random.uniform([3])

        def body(n, x):
            tf.tanh(x)
            return n + 1, tf.sqrt(x)

        weight.assign_add(tf.exp(x))
        return tf.while_loop(lambda n, _: n < 2, body, [0, x])[1]

    kinds = read(step, tf.TensorSpec(())).kinds
    assert {"Exp", "Sqrt", "AssignAddVariableOp"} < kinds
    assert not {"RandomUniform", "Tanh"} & kinds

"""What reaches XLA, and what is told apart from it before it would crash."""

import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.python.ops.resource_variable_ops import UninitializedVariable

from ipu_keras.ir import TensorSpec
from ipu_keras.tracing.hlo import hlo_graph
from ipu_keras.tracing.lowering import FunctionInput, LoweringError, lower

X = tf.TensorSpec((8, 3), tf.float32)


def trace(function, *specs):
    return tf.function(function, autograph=False).get_concrete_function(*specs)


def test_inputs_and_module():
    weights = tf.Variable(tf.ones((3, 2), tf.float16), name="dense/kernel")
    table = tf.constant([1, 2])
    concrete = trace(lambda x: (tf.cast(x, tf.float16) @ weights, table + 1), X)
    lowering = lower(concrete)
    assert lowering.name == concrete.function_def.signature.name
    assert lowering.inputs[0] == FunctionInput(TensorSpec((8, 3), "float32"), "argument", "x")
    assert {given.spec: given.role for given in lowering.inputs[1:]} == {
        TensorSpec((3, 2), "float16"): "variable",
        TensorSpec((2,), "int32"): "capture",
    }
    assert "dense/kernel" in [given.name for given in lowering.inputs]
    module = hlo_pb2.HloModuleProto.FromString(lowering.module)
    # float16 stays: XLA's passes for a CPU would multiply in float32.
    (dot,) = [i for c in module.computations for i in c.instructions if i.opcode == "dot"]
    assert dot.shape.element_type == 10


def test_a_function_without_inputs():
    lowering = lower(trace(lambda: tf.ones((2,))))
    assert lowering.inputs == ()
    assert lowering.module


def test_shapes_may_be_captured_but_not_fed():
    shape = tf.constant([3, 8])
    assert lower(trace(lambda x: tf.reshape(x, shape), X)).module

    # An argument would be taken for the zero that stands for it, so what XLA refused without
    # values is guessed.
    concrete = trace(
        lambda x, k: tf.reshape(x, shape) + tf.reduce_sum(x, k, keepdims=True)[0, 0],
        X,
        tf.TensorSpec((1,), tf.int32),
    )
    assert lower(concrete).refused == {"Reshape"}
    graph = hlo_graph(concrete)
    guessed = {op.kind for op in graph.ops if "not_lowered" in op.attributes}
    assert guessed == {"Reshape", "StridedSlice", "Sum"}


@pytest.mark.parametrize(
    ("function", "operations"),
    [
        (lambda x: tf.strings.length(tf.strings.as_string(x)), {"AsString"}),
        (lambda x: tf.reshape(x, tf.cast(x[0, :2], tf.int32)), {"Reshape"}),
        (lambda x: tf.math.real(tf.raw_ops.Inv(x=tf.cast(x, tf.int8), name="one/of")), {"one/of"}),
    ],
)
def test_errors_say_which_operations_were_refused(function, operations):
    with pytest.raises(LoweringError) as error:
        lower(trace(function, X))
    assert error.value.operations == operations


def test_what_is_refused_in_a_function_follows_the_name_of_its_call():
    def rows(x):
        return tf.reshape(x, tf.cast(x[0, :2], tf.int32))

    inner = tf.function(rows, autograph=False)
    with pytest.raises(LoweringError) as error:
        lower(trace(lambda x: tf.reduce_sum(inner(x)), X))
    assert error.value.operations == {"PartitionedCall/Reshape"}


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: tf.strings.length(tf.strings.as_string(x)), "AsString"),
        (lambda x: tf.py_function(lambda y: y, [x], tf.float32), "EagerPyFunc"),
        (lambda x: tf.reshape(x, tf.cast(x[0, :2], tf.int32)), "compile-time constant"),
    ],
)
def test_operations_that_xla_lacks(function, text):
    concrete = trace(function, X)
    with pytest.raises(LoweringError) as error:
        lower(concrete)
    assert str(error.value).startswith("XLA cannot lower the function '__inference_")
    assert "Replace the operation that it names" in str(error.value)
    assert text in str(error.value)
    assert isinstance(error.value, RuntimeError)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (tf.TensorSpec((None, 3), tf.float32), r"must have a fully defined shape; .*\(None, 3\)"),
        (tf.TensorSpec(None, tf.float32), "must have a fully defined shape; .*<unknown>"),
        (tf.TensorSpec((2,), tf.string), "must be a tensor of numbers; .*'x' of type string"),
    ],
)
def test_arguments_that_would_crash_xla(given, text):
    concrete = trace(lambda x: tf.identity(x), given)
    with pytest.raises(LoweringError, match=text):
        lower(concrete)


def test_a_shape_that_xla_cannot_count():
    concrete = trace(lambda x: x * 2.0, tf.TensorSpec((2**31 - 1, 2**31 - 1)))
    with pytest.raises(LoweringError, match="overflow in static extent product"):
        lower(concrete)


def test_a_variable_without_a_value():
    """XLA would make one of no type, and whoever reads it would be told that instead."""
    variable = UninitializedVariable(shape=(3,), dtype=tf.float32, name="weight")
    concrete = trace(lambda: variable + 1.0)
    with pytest.raises(LoweringError, match="A captured variable must have a value"):
        lower(concrete)
    assert not variable.is_initialized()
    variable.assign(tf.zeros(3))
    assert lower(concrete).inputs[0].name == "weight"


def test_captures_that_would_crash_xla():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), 0)
    concrete = trace(lambda x: table.lookup(tf.cast(x, tf.int32)), X)
    with pytest.raises(LoweringError, match="A captured resource must be a variable of") as error:
        lower(concrete)
    assert error.value.operations == {"None_Lookup/LookupTableFindV2"}


def test_captures_that_only_another_trace_knows():
    found = []

    def outer(x):
        found.append(trace(lambda y: y + x, X))
        return x

    trace(outer, X)
    inputs = lower(found[0]).inputs
    assert [(given.role, given.spec.shape) for given in inputs] == [
        ("argument", tuple(X.shape)),
        ("capture", tuple(X.shape)),
    ]


def test_variables_that_only_a_session_has():
    with tf.Graph().as_default() as graph:
        weight = tf.compat.v1.get_variable("weight", [3], use_resource=True)
        with graph.as_default():
            concrete = trace(lambda x: x * weight, tf.TensorSpec((2, 3)))
        inputs = lower(concrete).inputs
    assert [(given.role, given.spec.shape) for given in inputs] == [
        ("argument", (2, 3)),
        ("variable", (3,)),
    ]


def test_what_only_the_graph_of_a_session_names():
    """Such as what an optimizer of TensorFlow 1 keeps; the scopes of a function are not its own."""
    handle = tf.raw_ops.VarHandleOp
    with tf.Graph().as_default() as graph:
        kept = handle(dtype=tf.float32, shape=[3], shared_name="kept", name="weight/Adam")

        def update(x):
            with tf.name_scope("Adam/update"):
                return x * tf.raw_ops.ReadVariableOp(resource=kept, dtype=tf.float32)

        with graph.as_default():
            inputs = lower(trace(update, tf.TensorSpec((2, 3)))).inputs
    assert [(given.role, given.name) for given in inputs] == [
        ("argument", "x"),
        ("variable", "weight/Adam"),
    ]

"""Hand-made changes of what TensorFlow knows of a function."""

import pytest
import tensorflow as tf
from tensorflow.core.framework import function_pb2

from ipu_keras.host.rewrites.random_bits import compilable_random
from ipu_keras.tracing.definitions import (
    another_name,
    leave_out_unneeded,
    name_in_definition,
    take_instead,
)


def definition_of(function, *specs):
    concrete = tf.function(function).get_concrete_function(*specs)
    return concrete, concrete.function_def


def names_of(definition):
    return [node.name for node in definition.node_def]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("__inference_step_12", "__inference_step_", ""),
        ("__inference_step_12_grad", "__inference_step_", "_grad"),
        ("layer_2_step", "layer_", "_step"),
        ("step", "step_", ""),
    ],
)
def test_another_name_differs_by_the_last_number(name, before, after):
    first, second = another_name(name), another_name(name)
    assert first != second != name
    for found in (first, second):
        assert found.startswith(before)
        assert found.endswith(after)
        assert found[len(before) : len(found) - len(after)].isdigit()


def test_names_of_results_in_a_definition():
    """Of an operation with one, of one with a list of several, and of one with lists of both."""

    def step(x):
        first, second = tf.split(x, 2)
        values, indices = tf.math.top_k(second, k=1)
        return tf.add(first, values, name="sum"), indices

    concrete, definition = definition_of(step, tf.TensorSpec((4,), tf.float32))
    operations = {op.name: op for op in concrete.graph.get_operations()}
    assert name_in_definition(operations["sum"].outputs[0]) == "sum:z:0"
    assert [name_in_definition(t) for t in operations["split"].outputs] == [
        "split:output:0",
        "split:output:1",
    ]
    assert [name_in_definition(t) for t in operations["TopKV2"].outputs] == [
        "TopKV2:values:0",
        "TopKV2:indices:0",
    ]
    taken = {name for node in definition.node_def for name in node.input}
    assert {"split:output:0", "split:output:1", "TopKV2:values:0"} <= taken


def test_what_takes_a_tensor_takes_another():
    def step(x):
        doubled = tf.add(x, x, name="doubled")
        tf.multiply(x, x, name="squared")
        return tf.negative(doubled, name="negative"), doubled

    _, definition = definition_of(step, tf.TensorSpec((), tf.float32))
    take_instead(definition, {"doubled:z:0": "squared:z:0"})
    negative = next(node for node in definition.node_def if node.name == "negative")
    assert negative.input == ["squared:z:0"]
    inputs = [name for node in definition.node_def for name in node.input]
    assert "doubled:z:0" not in inputs
    assert inputs.count("squared:z:0") == 2  # the second is that of what is returned


def test_what_nothing_needs_is_left_out():
    """Writes are needed, and so is what they wait for."""
    variable = tf.Variable(1.0)

    def step(x):
        tf.multiply(x, x, name="squared")
        summed = tf.add(x, x, name="summed")
        with tf.control_dependencies([tf.negative(x, name="awaited")]):
            variable.assign(tf.exp(x, name="written"))
        return summed

    _, definition = definition_of(step, tf.TensorSpec((), tf.float32))
    leave_out_unneeded(definition)
    names = names_of(definition)
    assert {"summed", "written", "awaited", "AssignVariableOp"} <= set(names)
    assert "squared" not in names
    assert definition.control_ret["AssignVariableOp"] == "AssignVariableOp"


def test_a_needless_effect_is_left_out_unless_something_takes_its_result():
    """Nothing waits for it either."""
    with compilable_random() as found:
        _, definition = definition_of(
            lambda x: (tf.random.stateless_uniform((2,), (1, 2)), x * 2.0),
            tf.TensorSpec((), tf.float32),
        )
    (call,) = (one.other.op.name for one in found)
    assert definition.control_ret[call] == call
    assert any(f"^{call}" in node.input for node in definition.node_def)
    without = function_pb2.FunctionDef()
    without.CopyFrom(definition)
    leave_out_unneeded(definition, needless={call})
    assert call in names_of(definition)
    assert not definition.control_ret
    assert not definition.signature.control_output
    assert not any(f"^{call}" in node.input for node in definition.node_def)
    drawn = name_in_definition(found[0].result)
    take_instead(without, {name_in_definition(found[0].other): drawn})
    leave_out_unneeded(without, needless={call})
    assert call not in names_of(without)
    assert drawn.partition(":")[0] in names_of(without)

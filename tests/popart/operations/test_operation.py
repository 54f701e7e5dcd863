import tensorflow as tf

from ipu_keras.popart.model.graph import AI_ONNX
from ipu_keras.popart.operations.operation import operation


@operation("Made", since=3, static=["shape"], axis="axis")
def made(x, shape=None, *rest, axis, lambda_=2.0, context):
    return lambda_ * x


def test_parameters_are_inputs_and_attributes():
    assert (made.kind, made.since, made.domain) == ("Made", 3, AI_ONNX)
    assert [parameter.name for parameter in made.inputs] == ["x", "shape", "rest"]
    assert {name: each.name for name, each in made.attributes.items()} == {
        "axis": "axis",
        "lambda": "lambda_",
    }
    assert made.static == {"shape"}
    assert made.wants_context


def test_it_is_called_as_the_function_that_it_was():
    assert made(tf.constant(3.0), axis=0, context=None).numpy() == 6

import onnx
import pytest
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.element_types import number_of_type, type_of


def test_numbers_are_those_of_onnx():
    names = ("FLOAT16", "BFLOAT16", "DOUBLE", "INT8", "UINT64", "BOOL", "COMPLEX64")
    types = [type_of(onnx.TensorProto.DataType.Value(name)) for name in names]
    assert [each.name for each in types] == [
        "float16", "bfloat16", "float64", "int8", "uint64", "bool", "complex64"
    ]  # fmt: skip
    assert type_of(onnx.TensorProto.STRING) is tf.string


def test_types_have_the_numbers_that_name_them():
    for number in (onnx.TensorProto.FLOAT16, onnx.TensorProto.STRING, onnx.TensorProto.INT64):
        assert number_of_type(type_of(number)) == number


@pytest.mark.parametrize("name", ["FLOAT8E4M3FN", "INT4"])
def test_types_that_no_ipu_has_are_refused(name):
    with pytest.raises(popart_exception, match="Unknown data type"):
        type_of(onnx.TensorProto.DataType.Value(name))


def test_an_unknown_number_is_refused():
    with pytest.raises(popart_exception, match=r"type 0\. The data types are: 1 \(FLOAT\)"):
        type_of(0)

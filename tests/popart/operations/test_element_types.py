import onnx
import pytest
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.element_types import type_of


def test_numbers_are_those_of_onnx():
    names = ("FLOAT16", "BFLOAT16", "DOUBLE", "INT8", "UINT64", "BOOL", "COMPLEX64")
    types = [type_of(onnx.TensorProto.DataType.Value(name)) for name in names]
    assert [each.name for each in types] == [
        "float16", "bfloat16", "float64", "int8", "uint64", "bool", "complex64"
    ]  # fmt: skip
    assert type_of(onnx.TensorProto.STRING) is tf.string


def test_an_unknown_number_is_refused():
    with pytest.raises(popart_exception, match=r"the number 0\. Expected one of 1 \(FLOAT\)"):
        type_of(0)

"""What is read from XLA's instructions, on messages that are made by hand.

What XLA writes into them for real functions is tested in `test_hlo`.
"""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.compiler.xla.xla_data_pb2 import PrimitiveType

from ipu_keras.cost.tile.vertex_rates import ELEMENTS
from ipu_keras.ir import TensorSpec
from ipu_keras.tracing.hlo import hlo_graph
from ipu_keras.tracing.hlo_attributes import attributes_of, operation_of, specs_of

FLOAT32, TUPLE, TOKEN, BUFFER = 11, 13, 17, 34


def shape(element_type, *dimensions, parts=()):
    message = hlo_pb2.HloInstructionProto().shape
    message.element_type = element_type
    message.dimensions.extend(dimensions)
    message.tuple_shapes.extend(parts)
    return message


def computation(*instructions):
    """Of (opcode, operands) with ids from 0; the last one is the root."""
    message = hlo_pb2.HloComputationProto(root_id=len(instructions) - 1)
    parameters = 0
    for index, (opcode, operands) in enumerate(instructions):
        added = message.instructions.add(id=index, opcode=opcode, operand_ids=operands)
        if opcode == "parameter":
            added.parameter_number = parameters
            parameters += 1
    return message


def test_nested_tuples_are_tensors_in_order():
    pair = shape(TUPLE, parts=[shape(FLOAT32, 2, 3), shape(TOKEN)])
    assert specs_of(shape(TUPLE, parts=[pair, shape(1, 4)])) == (
        TensorSpec((2, 3), "float32"),
        TensorSpec((4,), "bool"),
    )


def test_an_element_type_without_a_name():
    with pytest.raises(ValueError, match=r"An element type of XLA must be one of .*Received: 34"):
        specs_of(shape(BUFFER, 2))


def test_the_model_knows_every_element_type():
    for element_type, name in PrimitiveType.items():
        if name not in (0, 13, 14, 17, 34) and element_type != "PRIMITIVE_TYPE_INVALID":
            (spec,) = specs_of(shape(name, 2, 3))
            assert spec.dtype in ELEMENTS
            assert spec.nbytes == 6 * ELEMENTS[spec.dtype].num_bytes


PARAMETERS = (("parameter", []), ("parameter", []))


@pytest.mark.parametrize(
    ("instructions", "operation"),
    [
        ([("add", [0, 1])], "add"),
        ([("maximum", [1, 0])], "maximum"),
        # In a wider type, and as a tuple of one.
        ([("convert", [0]), ("convert", [1]), ("add", [2, 3]), ("convert", [4])], "add"),
        ([("multiply", [0, 1]), ("tuple", [2])], "multiply"),
        ([("add", [0, 1]), ("multiply", [2, 1])], "custom"),
        ([("compare", [0, 1]), ("select", [2, 0, 1])], "custom"),
        # Of what is no operation on elements, no rate is known.
        ([("call", [0, 1])], "custom"),
        ([("xor", [0, 1])], "xor"),
        ([("tuple", [0, 1])], "custom"),
        ([("copy", [1])], "assign"),
        ([("copy", [0])], "first"),
    ],
)
def test_operations_of_reducers(instructions, operation):
    assert operation_of(computation(*PARAMETERS, *instructions)) == operation


@pytest.mark.parametrize(
    ("element_type", "field", "stored", "value"),
    [
        (1, "preds", [True], True),
        (5, "s64s", [-7], -7),
        (9, "u64s", [2**63], 2**63),
        (11, "f32s", [0.5], 0.5),
        (10, "f16s", np.float16([-1.5]).tobytes(), -1.5),
        # 0x4049 is the upper half of 3.140625 as float32.
        (16, "bf16s", b"\x49\x40", 3.140625),
        (2, "s8s", b"\xfe", -2),
        (6, "u8s", b"\xfe", 254),
    ],
)
def test_values_of_scalars(element_type, field, stored, value):
    instruction = hlo_pb2.HloInstructionProto(opcode="constant", shape=shape(element_type))
    if isinstance(stored, bytes):
        setattr(instruction.literal, field, stored)
    else:
        getattr(instruction.literal, field).extend(stored)
    found = attributes_of(instruction, {})
    assert found == {"value": value}
    assert type(found["value"]) is type(value)


@pytest.mark.parametrize(
    ("dimensions", "values", "progression"),
    [
        ((4,), [0, 1, 2, 3], (0, 1)),
        ((2, 3), [0, 0, 0, 5, 5, 5], (0, 5)),
        ((2, 3, 1), [0, 2, 4, 0, 2, 4], (1, 2)),
        ((3,), [0, -1, -2], (0, -1)),
        ((2, 1), [0, 0], (0, 0)),
    ],
)
def test_integers_that_count(dimensions, values, progression):
    for element_type, field in [(4, "s32s"), (5, "s64s")]:
        instruction = hlo_pb2.HloInstructionProto(opcode="constant")
        instruction.shape.CopyFrom(shape(element_type, *dimensions))
        getattr(instruction.literal, field).extend(values)
        assert attributes_of(instruction, {}) == {"progression": progression}


@pytest.mark.parametrize(
    ("dimensions", "element_type", "field", "values"),
    [
        ((3,), 4, "s32s", [1, 2, 3]),
        ((3,), 4, "s32s", [0, 1, 3]),
        ((2, 2), 4, "s32s", [0, 1, 2, 3]),
        ((2,), 11, "f32s", [0, 1]),
        ((0,), 4, "s32s", []),
    ],
)
def test_arrays_that_do_not_count(dimensions, element_type, field, values):
    instruction = hlo_pb2.HloInstructionProto(opcode="constant")
    instruction.shape.CopyFrom(shape(element_type, *dimensions))
    getattr(instruction.literal, field).extend(values)
    assert attributes_of(instruction, {}) == {}


@pytest.mark.parametrize(
    ("fields", "attributes"),
    [
        ({"opcode": "add"}, {}),
        ({"opcode": "custom-call", "custom_call_target": "TopK"}, {"custom_call_target": "TopK"}),
        ({"opcode": "rng", "distribution": 2}, {"distribution": "normal"}),
        ({"opcode": "rng-bit-generator", "rng_algorithm": 2}, {"rng_algorithm": "philox"}),
        ({"opcode": "iota", "dimensions": [1]}, {"dimensions": (1,)}),
        ({"opcode": "topk", "k": 3, "largest": True}, {"k": 3, "largest": True}),
        (
            {"opcode": "fft", "fft_type": 2, "fft_length": [8]},
            {"fft_type": "rfft", "fft_length": (8,)},
        ),
        ({"opcode": "batch-norm-training", "feature_index": 3}, {"feature_index": 3}),
        ({"opcode": "all-to-all", "dimensions": [1]}, {"dimensions": (1,), "num_replicas": 1}),
        (
            {"opcode": "all-gather", "replica_groups": [{"replica_ids": [0, 2]}] * 2},
            {"dimensions": (), "num_replicas": 2},
        ),
    ],
)
def test_attributes(fields, attributes):
    assert attributes_of(hlo_pb2.HloInstructionProto(**fields), {}) == attributes


def test_replicas_of_a_collective():
    """TensorFlow's own lowering: where the groups are differs from version to version."""

    def both(x):
        groups = [[0, 1, 2, 3]]
        total = gen_xla_ops.xla_all_reduce(x, groups, "Add", "CrossReplica")
        return gen_xla_ops.xla_reduce_scatter(total, [[0, 1], [2, 3]], 0, "Max")

    traced = tf.function(both).get_concrete_function(tf.TensorSpec((8, 4)))
    found = {op.kind: op.attributes for op in hlo_graph(traced).ops}
    assert found["all-reduce"]["num_replicas"] == 4
    assert found["all-reduce"]["operation"] == "add"
    assert found["reduce-scatter"]["num_replicas"] == 2
    assert found["reduce-scatter"]["operation"] == "maximum"

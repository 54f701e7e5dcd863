"""Reads what the work of an HLO instruction depends on beyond its shapes.

The keys of attributes are the names that XLA's operation semantics and `xla_data.proto` use;
the values are plain tuples, numbers and strings.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ipu_keras.ir import TensorSpec, family_of
from ipu_keras.tracing.infeeds import is_infeed
from ipu_keras.tracing.replication import collective_of_instruction

# XLA's PrimitiveType by the names of NumPy and of the types that TensorFlow adds to it.
_DTYPES: Mapping[int, str] = {
    1: "bool",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "uint8",
    7: "uint16",
    8: "uint32",
    9: "uint64",
    10: "float16",
    11: "float32",
    12: "float64",
    15: "complex64",
    16: "bfloat16",
    18: "complex128",
    19: "float8_e5m2",
    20: "float8_e4m3fn",
    21: "int4",
    22: "uint4",
    23: "float8_e4m3b11fnuz",
    24: "float8_e5m2fnuz",
    25: "float8_e4m3fnuz",
    26: "int2",
    27: "uint2",
    28: "float8_e4m3",
    29: "float8_e3m4",
    30: "int1",
    31: "uint1",
    32: "float4_e2m1fn",
    33: "float8_e8m0fnu",
}
_TUPLE, _OPAQUE, _TOKEN = 13, 14, 17

# The field of a literal that holds the values of a type: numbers, or bytes if a format is
# given.
_LITERALS: Mapping[int, tuple[str, str | None]] = {
    1: ("preds", None),
    2: ("s8s", "<i1"),
    4: ("s32s", None),
    5: ("s64s", None),
    6: ("u8s", "<u1"),
    8: ("u32s", None),
    9: ("u64s", None),
    10: ("f16s", "<f2"),
    11: ("f32s", None),
    12: ("f64s", None),
    16: ("bf16s", "<u2"),
}
_BFLOAT16 = 16
# Fields of the types in which batched gathers count the elements of a batch.
_COUNTERS = frozenset({"s32s", "s64s", "u32s"})

Computations = Mapping[int, Any]


def specs_of(shape) -> tuple[TensorSpec, ...]:
    """Returns the tensors of an XLA `ShapeProto`, those of nested tuples in order.

    Tokens, which only order effects, are no tensors.
    """
    element_type = shape.element_type
    if element_type == _TUPLE:
        return tuple(spec for part in shape.tuple_shapes for spec in specs_of(part))
    if element_type in (_TOKEN, _OPAQUE):
        return ()
    if element_type not in _DTYPES:
        raise ValueError(
            f"An element type of XLA must be one of {sorted(_DTYPES)}, as numbered in "
            f"xla_data.proto; add it to the table. Received: {element_type}"
        )
    return (TensorSpec(tuple(shape.dimensions), _DTYPES[element_type]),)


def attributes_of(instruction, computations: Computations) -> dict[str, Any]:
    """Returns the attributes, by XLA's names, that the cost of an instruction may depend on.

    Reducers are looked up in `computations`, by id. Elementwise operations have no attributes.
    """
    read = _READERS.get(instruction.opcode)
    return read(instruction, computations) if read is not None else {}


def operation_of(computation) -> str:
    """Returns what a reducer or combiner of two scalars does.

    It is an opcode such as `"add"` if one instruction does all of it, else `"custom"`, as for
    the pairs of an arg max.
    """
    by_id = {instruction.id: instruction for instruction in computation.instructions}
    root = by_id[computation.root_id]
    # XLA reduces narrow types in wide ones, and may wrap the result in a tuple of one: what is
    # converted around the operation does not change which one it is.
    while root.opcode in ("convert", "tuple", "copy", "reshape") and len(root.operand_ids) == 1:
        root = by_id[root.operand_ids[0]]
    operands = [by_id[operand] for operand in root.operand_ids]
    while any(operand.opcode == "convert" for operand in operands):
        operands = [
            by_id[operand.operand_ids[0]] if operand.opcode == "convert" else operand
            for operand in operands
        ]
    if root.opcode == "parameter":
        return "first" if root.parameter_number == 0 else "assign"
    is_direct = operands and all(operand.opcode == "parameter" for operand in operands)
    return root.opcode if is_direct and family_of(root.opcode) == "elementwise" else "custom"


def _elementwise_parts(computation) -> tuple[str, ...]:
    """Returns the elementwise operations of a computation of scalars."""
    opcodes = (instruction.opcode for instruction in computation.instructions)
    return tuple(opcode for opcode in opcodes if family_of(opcode) == "elementwise")


def _operations(instruction, computations: Computations) -> list[str]:
    return [operation_of(computations[called]) for called in instruction.called_computation_ids]


def _dot(instruction, _) -> dict[str, Any]:
    numbers = instruction.dot_dimension_numbers
    return {
        "lhs_contracting_dimensions": tuple(numbers.lhs_contracting_dimensions),
        "rhs_contracting_dimensions": tuple(numbers.rhs_contracting_dimensions),
        "lhs_batch_dimensions": tuple(numbers.lhs_batch_dimensions),
        "rhs_batch_dimensions": tuple(numbers.rhs_batch_dimensions),
    }


def _window(window) -> dict[str, Any]:
    dimensions = window.dimensions
    return {
        "window_size": tuple(d.size for d in dimensions),
        "window_stride": tuple(d.stride for d in dimensions),
        "window_padding": tuple((d.padding_low, d.padding_high) for d in dimensions),
        "base_dilation": tuple(d.base_dilation for d in dimensions),
        "window_dilation": tuple(d.window_dilation for d in dimensions),
        "window_reversal": tuple(d.window_reversal for d in dimensions),
    }


def _convolution(instruction, _) -> dict[str, Any]:
    numbers = instruction.convolution_dimension_numbers
    return {
        **_window(instruction.window),
        "input_batch_dimension": numbers.input_batch_dimension,
        "input_feature_dimension": numbers.input_feature_dimension,
        "input_spatial_dimensions": tuple(numbers.input_spatial_dimensions),
        "kernel_input_feature_dimension": numbers.kernel_input_feature_dimension,
        "kernel_output_feature_dimension": numbers.kernel_output_feature_dimension,
        "kernel_spatial_dimensions": tuple(numbers.kernel_spatial_dimensions),
        "output_batch_dimension": numbers.output_batch_dimension,
        "output_feature_dimension": numbers.output_feature_dimension,
        "output_spatial_dimensions": tuple(numbers.output_spatial_dimensions),
        # Absent in old modules, where 0 stands for one group.
        "feature_group_count": instruction.feature_group_count or 1,
        "batch_group_count": instruction.batch_group_count or 1,
    }


def _reduce(instruction, computations: Computations) -> dict[str, Any]:
    (operation,) = _operations(instruction, computations)
    return {"dimensions": tuple(instruction.dimensions), "operation": operation}


def _reduce_window(instruction, computations: Computations) -> dict[str, Any]:
    (operation,) = _operations(instruction, computations)
    found = {**_window(instruction.window), "operation": operation}
    if operation == "custom":
        (called,) = instruction.called_computation_ids
        found["operations"] = _elementwise_parts(computations[called])
    return found


def _select_and_scatter(instruction, computations: Computations) -> dict[str, Any]:
    select, scatter = (computations[called] for called in instruction.called_computation_ids)
    return {
        **_window(instruction.window),
        "select": _direction(select),
        "operation": operation_of(scatter),
    }


def _direction(computation) -> str:
    """Returns XLA's direction of a comparison, or "custom"."""
    root = next(i for i in computation.instructions if i.id == computation.root_id)
    return root.comparison_direction or "custom"


def _dimensions(instruction, _) -> dict[str, Any]:
    return {"dimensions": tuple(instruction.dimensions)}


def _combined(instruction, computations: Computations) -> dict[str, Any]:
    return {"operation": (_operations(instruction, computations) or ["custom"])[0]}


def _num_replicas(instruction) -> int:
    """Returns how many replicas take part in a collective; 1 if its module names no groups."""
    # Newer versions of XLA keep the groups in a list of devices.
    devices = getattr(instruction, "collective_device_list", instruction)
    groups = [*instruction.replica_groups, *devices.replica_groups]
    return max((len(group.replica_ids) for group in groups), default=1)


def _collective(instruction, computations: Computations) -> dict[str, Any]:
    found = {"num_replicas": _num_replicas(instruction), **_dimensions(instruction, computations)}
    if instruction.called_computation_ids:
        found.update(_combined(instruction, computations))
    return found


def _slice(instruction, _) -> dict[str, Any]:
    slices = instruction.slice_dimensions
    return {
        "start": tuple(d.start for d in slices),
        "limit": tuple(d.limit for d in slices),
        "stride": tuple(d.stride for d in slices),
    }


def _dynamic_slice(instruction, _) -> dict[str, Any]:
    return {"slice_sizes": tuple(instruction.dynamic_slice_sizes)}


def _pad(instruction, _) -> dict[str, Any]:
    dimensions = instruction.padding_config.dimensions
    return {
        "edge_padding_low": tuple(d.edge_padding_low for d in dimensions),
        "edge_padding_high": tuple(d.edge_padding_high for d in dimensions),
        "interior_padding": tuple(d.interior_padding for d in dimensions),
    }


def _gather(instruction, _) -> dict[str, Any]:
    numbers = instruction.gather_dimension_numbers
    return {
        "offset_dims": tuple(numbers.offset_dims),
        "collapsed_slice_dims": tuple(numbers.collapsed_slice_dims),
        "start_index_map": tuple(numbers.start_index_map),
        "index_vector_dim": numbers.index_vector_dim,
        "operand_batching_dims": tuple(numbers.operand_batching_dims),
        "start_indices_batching_dims": tuple(numbers.start_indices_batching_dims),
        "slice_sizes": tuple(instruction.gather_slice_sizes),
        "indices_are_sorted": instruction.indices_are_sorted,
    }


def _scatter(instruction, computations: Computations) -> dict[str, Any]:
    numbers = instruction.scatter_dimension_numbers
    return {
        "update_window_dims": tuple(numbers.update_window_dims),
        "inserted_window_dims": tuple(numbers.inserted_window_dims),
        "scatter_dims_to_operand_dims": tuple(numbers.scatter_dims_to_operand_dims),
        "index_vector_dim": numbers.index_vector_dim,
        "input_batching_dims": tuple(numbers.input_batching_dims),
        "scatter_indices_batching_dims": tuple(numbers.scatter_indices_batching_dims),
        "indices_are_sorted": instruction.indices_are_sorted,
        "unique_indices": instruction.unique_indices,
        **_combined(instruction, computations),
    }


def _compare(instruction, _) -> dict[str, Any]:
    return {"direction": instruction.comparison_direction}


def _custom_call(instruction, _) -> dict[str, Any]:
    collective = collective_of_instruction(instruction)
    if collective is None:
        return {"custom_call_target": instruction.custom_call_target}
    found: dict[str, Any] = {"num_replicas": collective.groups.size}
    if collective.operation:
        found["operation"] = collective.operation
    return {**found, "dimensions": collective.dimensions}


def kind_of(instruction) -> str:
    """Returns XLA's name of what an instruction does, also where a marker stands for it."""
    if is_infeed(instruction):
        return "infeed"
    collective = collective_of_instruction(instruction)
    return instruction.opcode if collective is None else collective.kind


def _rng(instruction, _) -> dict[str, Any]:
    return {"distribution": {1: "uniform", 2: "normal"}[instruction.distribution]}


def _rng_bit_generator(instruction, _) -> dict[str, Any]:
    algorithms = {0: "default", 1: "three_fry", 2: "philox"}
    return {"rng_algorithm": algorithms[instruction.rng_algorithm]}


def _sort(instruction, computations: Computations) -> dict[str, Any]:
    (comparator,) = (computations[called] for called in instruction.called_computation_ids)
    return {
        "dimensions": tuple(instruction.dimensions),
        "is_stable": instruction.is_stable,
        "direction": _direction(comparator),
    }


def _topk(instruction, _) -> dict[str, Any]:
    return {"k": instruction.k, "largest": instruction.largest}


def _fft(instruction, _) -> dict[str, Any]:
    types = {0: "fft", 1: "ifft", 2: "rfft", 3: "irfft"}
    return {"fft_type": types[instruction.fft_type], "fft_length": tuple(instruction.fft_length)}


def _batch_norm(instruction, _) -> dict[str, Any]:
    return {"feature_index": instruction.feature_index}


def _constant(instruction, _) -> dict[str, Any]:
    """Returns a scalar's value; for other constants only whether they count up."""
    if instruction.shape.element_type not in _LITERALS:
        return {}
    if instruction.shape.dimensions:
        return _progression(instruction)
    field, byte_format = _LITERALS[instruction.shape.element_type]
    values = getattr(instruction.literal, field)
    if byte_format is not None:
        values = np.frombuffer(values, byte_format)
        if instruction.shape.element_type == _BFLOAT16:
            # A bfloat16 is the upper half of a float32.
            values = (values.astype(np.uint32) << 16).view(np.float32)
        values = values.tolist()
    return {"value": values[0]}


def _progression(instruction) -> dict[str, Any]:
    """Returns axis and step of integers that grow from 0 along one axis; see `hlo_graph`."""
    field, _ = _LITERALS[instruction.shape.element_type]
    values = getattr(instruction.literal, field)
    if field not in _COUNTERS or not values or values[0] != 0:
        return {}
    array = np.array(values).reshape(tuple(instruction.shape.dimensions))
    seconds = [
        array[tuple(int(k == axis) for k in range(array.ndim))] if size > 1 else 0
        for axis, size in enumerate(array.shape)
    ]
    axis = next((k for k, second in enumerate(seconds) if second != 0), 0)
    along = [-1 if k == axis else 1 for k in range(array.ndim)]
    expected = int(seconds[axis]) * np.arange(array.shape[axis]).reshape(along)
    if not np.array_equal(array, np.broadcast_to(expected, array.shape)):
        return {}
    return {"progression": (axis, int(seconds[axis]))}


_READERS: Mapping[str, Callable[[Any, Computations], dict[str, Any]]] = {
    "all-gather": _collective,
    "all-reduce": _collective,
    "all-to-all": _collective,
    "batch-norm-grad": _batch_norm,
    "batch-norm-inference": _batch_norm,
    "batch-norm-training": _batch_norm,
    "broadcast": _dimensions,
    "compare": _compare,
    "concatenate": _dimensions,
    "constant": _constant,
    "convolution": _convolution,
    "custom-call": _custom_call,
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "fft": _fft,
    "gather": _gather,
    "iota": _dimensions,
    "map": _combined,
    "pad": _pad,
    "reduce": _reduce,
    "reduce-scatter": _collective,
    "reduce-window": _reduce_window,
    "reverse": _dimensions,
    "rng": _rng,
    "rng-bit-generator": _rng_bit_generator,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "slice": _slice,
    "sort": _sort,
    "topk": _topk,
    "transpose": _dimensions,
}

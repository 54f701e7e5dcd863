"""Reads HLO's products and convolutions as the planner's `Convolution`."""

import math
from collections.abc import Collection, Sequence

from ipu_keras.cost.products.convolutions import Convolution, matmul
from ipu_keras.ir import Op, TensorSpec

# The matrix unit has two input types; what is narrower or wider is counted as the next.
_HALF = frozenset({"float16", "bfloat16"})


def product_of(op: Op, inputs: Sequence[TensorSpec]) -> Convolution:
    left, right = inputs[:2]
    attributes = op.attributes
    batch = attributes["lhs_batch_dimensions"]
    contracted = attributes["lhs_contracting_dimensions"]
    both = (*attributes["rhs_batch_dimensions"], *attributes["rhs_contracting_dimensions"])
    # Products of a batch share nothing, so they are groups of one convolution; rows are
    # positions of its field, and a kernel of one element multiplies.
    return matmul(
        math.prod(left.shape[axis] for axis in batch),
        _product_of_others(left, (*batch, *contracted)),
        math.prod(left.shape[axis] for axis in contracted),
        _product_of_others(right, both),
        _input_dtype(left),
    )


def convolution_of(op: Op, inputs: Sequence[TensorSpec]) -> Convolution:
    """Returns the convolution of a `"convolution"`, which may be a gradient."""
    source, output, attributes = inputs[0], op.outputs[0], op.attributes
    # In groups of the batch, each output channel sees one group's samples only.
    batch_groups = attributes["batch_group_count"]
    in_channels = source.shape[attributes["input_feature_dimension"]] * batch_groups
    return Convolution(
        batch=output.shape[attributes["output_batch_dimension"]],
        field=tuple(output.shape[axis] for axis in attributes["output_spatial_dimensions"]) or (1,),
        kernel=attributes["window_size"] or (1,),
        in_channels=in_channels,
        out_channels=output.shape[attributes["output_feature_dimension"]],
        groups=attributes["feature_group_count"] * batch_groups,
        strides=attributes["window_stride"],
        dtype=_input_dtype(source),
        input_dilations=attributes["base_dilation"],
        kernel_dilations=attributes["window_dilation"],
        padding=_padding(attributes.get("window_padding", ())),
    )


def _padding(sides: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    # Less than none leaves a part of the input out, which the output's size says.
    return tuple((max(low, 0), max(high, 0)) for low, high in sides)


def _input_dtype(spec: TensorSpec) -> str:
    return "float16" if spec.dtype in _HALF else "float32"


def _product_of_others(spec: TensorSpec, axes: Collection[int]) -> int:
    return math.prod(size for axis, size in enumerate(spec.shape) if axis not in axes)

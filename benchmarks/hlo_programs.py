"""Small programs as XLA would write them, and what the model says of them.

What is measured of hardware is one operation at a time. Here it becomes a program of that
operation, which goes through all of the model, as that of a user does.
"""

from typing import Any

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.passes import model_graph
from ipu_keras.ir import Graph, Op, TensorSpec
from ipu_keras.machine.target import Target


def operation(
    name: str,
    kind: str,
    shape: tuple[int, ...],
    *inputs: str,
    dtype: str = "float32",
    layer: str = "",
    **attributes: Any,
) -> Op:
    """An operation with one result.

    Args:
        name: Of the result.
        kind: XLA's opcode.
        shape: Of the result.
        *inputs: Names of what it takes.
        dtype: Of the result.
        layer: That it belongs to.
        **attributes: As the reader of XLA's modules has them.
    """
    spec = TensorSpec(shape, dtype)
    return Op(name, kind, (spec,), inputs=inputs, attributes=attributes, layer=layer)


def argument(name: str, *shape: int, dtype: str = "float32") -> Op:
    """What the program is given."""
    return operation(name, "parameter", shape, dtype=dtype, role="argument")


def product(left: Op, right: Op, *, batched: bool = False) -> list[Op]:
    """A program that multiplies matrices, in each batch if there are several.

    Args:
        left: An argument.
        right: Another one, of the same dtype.
        batched: Whether the first axis of both is the batch.
    """
    first, second = left.outputs[0], right.outputs[0]
    batch = (0,) if batched else ()
    multiplied = operation(
        "y",
        "dot",
        (*first.shape[:-1], second.shape[-1]),
        left.name,
        right.name,
        dtype=first.dtype,
        lhs_batch_dimensions=batch,
        rhs_batch_dimensions=batch,
        lhs_contracting_dimensions=(len(first.shape) - 1,),
        rhs_contracting_dimensions=(len(batch),),
    )
    return [left, right, multiplied]


def convolution(
    *,
    batch: int,
    size: int,
    kernel: int,
    in_channels: int,
    out_channels: int,
    stride: int,
    groups: int,
) -> list[Op]:
    """A program of one two-dimensional convolution of halves with "same" padding.

    Args:
        batch: Images.
        size: Pixels of a side of each.
        kernel: Elements of a side of the kernel.
        in_channels: Of all groups.
        out_channels: Of all groups.
        stride: In both dimensions.
        groups: Convolutions that share nothing.
    """
    field = -(-size // stride)
    zeros = max((field - 1) * stride + kernel - size, 0)
    convolved = operation(
        "y",
        "convolution",
        (batch, field, field, out_channels),
        "x",
        "w",
        dtype="float16",
        input_feature_dimension=3,
        output_batch_dimension=0,
        output_feature_dimension=3,
        input_spatial_dimensions=(1, 2),
        output_spatial_dimensions=(1, 2),
        kernel_output_feature_dimension=3,
        window_size=(kernel, kernel),
        window_stride=(stride, stride),
        window_padding=((zeros // 2, zeros - zeros // 2),) * 2,
        base_dilation=(1, 1),
        window_dilation=(1, 1),
        feature_group_count=groups,
        batch_group_count=1,
    )
    return [
        argument("x", batch, size, size, in_channels, dtype="float16"),
        argument("w", kernel, kernel, in_channels // groups, out_channels, dtype="float16"),
        convolved,
    ]


def total(*shape: int) -> list[Op]:
    """A program that adds all elements of a tensor to one number, `"sum"`."""
    return [
        argument("x", *shape),
        operation("zero", "constant", (), value=0.0),
        operation(
            "sum", "reduce", (), "x", "zero", dimensions=tuple(range(len(shape))), operation="add"
        ),
    ]


def model_of(target: Target, program: list[Op], **options: Any) -> ModelledProgram:
    """The model of a program that returns the result of its last operation.

    Args:
        target: The hardware.
        program: Its operations, in the order in which they run.
        **options: Of `CostOptions`.
    """
    graph = Graph("step", tuple(program), {}, results=(program[-1].name,), form="hlo")
    return model_graph("step", graph, target, CostOptions(**options))

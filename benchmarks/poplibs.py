"""How far the cost model is from what poplibs expects of its own benchmarks, by kind.

`hardware/poplibs_benchmarks.tsv` has programs of poplibs' tools (`single_conv_layer`,
`general_matrix_multiply` and so on) with the cycles, the bytes of all tiles without gaps and the
fullest tile with gaps that its tests of SDK 2.0 expect on the IPU Model, Mk1 and Mk2. Each is
written out here as HLO, or traced where the model knows an operation of Poplar's libraries by
what TensorFlow makes of it.

A convolution or layer has three passes: forward, the gradient of its input, and that of its
weights, which are updated. Copies with the host are no part of it, but what the tool fetches after
the last pass stays until then.
"""

import argparse
import csv
import functools
import math
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from hlo_programs import argument, operation
from rich.console import Console
from rich.table import Table

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.cost.vertices.families import MULTI_CONVOLUTION_FAMILY
from ipu_keras.ir import POPLAR_CALL, Graph, Op
from ipu_keras.machine.target import TARGETS, Target

POINTS = Path(__file__).resolve().parent / "hardware" / "poplibs_benchmarks.tsv"

_TARGETS: Mapping[str, str] = {"IpuModel1": "gc2", "IpuModel2": "gc200"}
_SDK = 2.0
_NOT_COUNTED = ("gaps", "vertex_code", "control_code", "exchange_code")
# A memory element of the IPU Model, Mk1 and Mk2: reductions of less than 1 kB have 16,440 bytes
# with gaps, of which 56 lie behind it.
_ELEMENT_BYTES = 16_384

# Why no program stands for a kind of rows.
NOT_EXPRESSED: Mapping[str, str] = {
    "cholesky": "the model has no family for decompositions, and guesses them from their bytes",
    "?": "the model has no family for triangular solves, and guesses them from their bytes",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the data file.

    Args:
        target: The name of the model's target.
        kind: What poplibs' tool computes.
        name: Of the program, as poplibs' tests have it.
        parameters: Of the tool, as text.
        cycles: Expected by poplibs' tests.
        total_bytes: Of all tiles, without gaps.
        fullest_tile_bytes: Of the fullest tile, with gaps.
    """

    target: str
    kind: str
    name: str
    parameters: Mapping[str, str]
    cycles: int
    total_bytes: int
    fullest_tile_bytes: int

    def number(self, name: str, default: int | None = None) -> int:
        """Returns a parameter that is a whole number."""
        if default is not None and name not in self.parameters:
            return default
        return int(self.parameters[name])

    def numbers(self, name: str) -> tuple[int, ...]:
        """Returns a parameter that is a list, with or without braces."""
        return tuple(map(int, self.parameters[name].strip("{}").split(",")))

    def pair(self, name: str, default: tuple[int, int] = (0, 0)) -> tuple[int, int]:
        """Returns a parameter of two dimensions, which may be one number for both."""
        if name not in self.parameters:
            return default
        first, *rest = self.numbers(name)
        return first, rest[0] if rest else first

    @property
    def hardware(self) -> Target:
        """The target, with the software of the tests."""
        return TARGETS[self.target].with_sdk(_SDK)

    @property
    def dtype(self) -> str:
        """The type of the data, in the model's words."""
        name = self.parameters.get("data-type", self.parameters.get("type", "half"))
        return "float16" if name == "half" else "float32"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the model says of a row, each figure divided by poplibs' less one."""

    row: Row
    cycles: float
    total_bytes: float
    fullest_tile_bytes: float
    model: ModelledProgram


def rows() -> list[Row]:
    """The rows of the data file, in its order."""
    with POINTS.open(newline="", encoding="utf-8") as file:
        return [_row(line) for line in csv.DictReader(file, delimiter="\t")]


def _row(line: Mapping[str, str]) -> Row:
    return Row(
        target=_TARGETS[line["target"]],
        kind=line["kind"],
        name=line["name"],
        parameters=dict(part.split("=", 1) for part in (line["parameters"] or "").split()),
        cycles=int(line["cycles"]),
        total_bytes=int(line["total_bytes_without_gaps"]),
        fullest_tile_bytes=int(line["fullest_tile_with_gaps"]),
    )


def compared(row: Row) -> Comparison:
    """Models the program of a row.

    Args:
        row: Of a kind that is not in `NOT_EXPRESSED`.
    """
    model = _MODELLED[row.kind](row)
    memory = model.memory
    # Poplibs' tests have the IPU Model compile no code: all that a reduction has on a tile is 229
    # bytes, of which 201 are values, partials and messages; a vertex has the other 28.
    counted = memory.total_bytes - sum(memory.bytes_by_category[name] for name in _NOT_COUNTED)
    # What is interleaved lies above all else, whatever is free below: that is most of the gaps.
    costs = list(_all_costs(model.costs))
    interleaved = max((cost.interleaved_bytes for cost in costs), default=0)
    boundary = model.target.code_region_bytes if interleaved else 0
    # What has to lie in other memory elements than all results lies behind the first, at least.
    separate = max((cost.separate_bytes for cost in costs), default=0)
    second = _ELEMENT_BYTES if separate else 0
    fullest = memory.max_tile_bytes - (memory.total_bytes - counted) // len(memory.peak_by_tile)
    return Comparison(
        row=row,
        cycles=model.compute_cycles / row.cycles - 1,
        total_bytes=counted / row.total_bytes - 1,
        fullest_tile_bytes=max(fullest, boundary + interleaved, second + separate)
        / row.fullest_tile_bytes
        - 1,
        model=model,
    )


def _all_costs(costs: Iterable[Cost]) -> Iterator[Cost]:
    for cost in costs:
        yield cost
        yield from _all_costs(cost.parts)


class _Program:
    """Operations in the order in which they run; each method adds some and returns the last."""

    def __init__(self, dtype: str):
        self.ops: list[Op] = []
        self.functions: dict[str, Graph] = {}
        self.results: list[str] = []
        self._fetched: list[str] = []
        self._dtype = dtype
        self._variables = 0

    def add(self, kind: str, shape: Iterable[int], *inputs: Op, **attributes: Any) -> Op:
        attributes.setdefault("dtype", self._dtype)
        name = f"{kind}{len(self.ops)}"
        op = operation(name, kind, tuple(shape), *(one.name for one in inputs), **attributes)
        self.ops.append(op)
        return op

    def argument(self, *shape: int, dtype: str = "") -> Op:
        op = argument(f"argument{len(self.ops)}", *shape, dtype=dtype or self._dtype)
        self.ops.append(op)
        return op

    def variable(self, *shape: int) -> Op:
        """A variable, whose new value is the result of that number."""
        self._variables += 1
        return self.add("parameter", shape, role="variable", result=self._variables - 1)

    def update(self, variable: Op, gradient: Op) -> None:
        """Subtracts a gradient times a rate."""
        shape = variable.outputs[0].shape
        rate = self.add("constant", (), value=0.1)
        rates = self.add("broadcast", shape, rate, dimensions=())
        step = self.add("multiply", shape, gradient, rates)
        self.results.append(self.add("subtract", shape, variable, step).name)

    def fetch(self, result: Op) -> None:
        """Has a value stay until the end, when the host takes it."""
        self._fetched.append(result.name)

    def sum(self, left: Op, right: Op) -> Op:
        return self.add("add", left.outputs[0].shape, left, right)

    def product(self, left: Op, right: Op, contracted: tuple[int, int]) -> Op:
        """Multiplies matrices of groups, whose axis is the first, over an axis of each."""
        first, second = left.outputs[0].shape, right.outputs[0].shape
        shape = (first[0], first[3 - contracted[0]], second[3 - contracted[1]])
        return self.add(
            "dot",
            shape,
            left,
            right,
            lhs_batch_dimensions=(0,),
            rhs_batch_dimensions=(0,),
            lhs_contracting_dimensions=(contracted[0],),
            rhs_contracting_dimensions=(contracted[1],),
        )

    def window(self, source: Op, size: int, stride: int, padding: tuple[int, int], how: str) -> Op:
        """Combines what windows of two dimensions have."""
        batch, *field, channels = source.outputs[0].shape
        out = [(n + sum(padding) - size) // stride + 1 for n in field]
        zero = self.add("constant", (), value=0.0)
        return self.add(
            "reduce-window",
            (batch, *out, channels),
            source,
            zero,
            operation=how,
            **_window(size, stride, padding),
        )

    def upsampled(self, source: Op) -> Op:
        """Repeats each element of a field in two dimensions."""
        batch, rows, columns, channels = source.outputs[0].shape
        repeated = self.add(
            "broadcast", (batch, rows, 2, columns, 2, channels), source, dimensions=(0, 1, 3, 5)
        )
        return self.add("reshape", (batch, 2 * rows, 2 * columns, channels), repeated)

    def together(self, convolutions: list[Op]) -> list[Op]:
        """Makes convolutions that nothing reads yet one multi-convolution; returns its results."""
        own = {op.name for op in convolutions}
        self.ops = [op for op in self.ops if op.name not in own]
        given = tuple(dict.fromkeys(name for op in convolutions for name in op.inputs))
        specs = {op.name: op.outputs[0] for op in self.ops}
        parameters = tuple(
            Op(name, "parameter", (specs[name],), attributes={"first_leaf": k})
            for k, name in enumerate(given)
        )
        name = f"together{len(self.functions)}"
        self.functions[name] = Graph(
            name,
            (*parameters, *convolutions),
            {},
            results=tuple(op.name for op in convolutions),
            form="hlo",
        )
        made = Op(
            f"{name}.call",
            POPLAR_CALL,
            tuple(op.outputs[0] for op in convolutions),
            inputs=given,
            body=(name,),
            attributes={"operation": MULTI_CONVOLUTION_FAMILY},
        )
        self.ops.append(made)
        return [
            replace(op, name=f"{made.name}:{k}" if len(convolutions) > 1 else made.name)
            for k, op in enumerate(convolutions)
        ]

    def model(self, target: Target) -> ModelledProgram:
        results = (*self.results, *self._fetched) or (self.ops[-1].name,)
        graph = Graph("step", tuple(self.ops), self.functions, results=results, form="hlo")
        return model_graph("step", graph, target, CostOptions())


def _window(size: int, stride: int, padding: tuple[int, int]) -> dict[str, Any]:
    return {
        "window_size": (1, size, size, 1),
        "window_stride": (1, stride, stride, 1),
        "window_padding": ((0, 0), padding, padding, (0, 0)),
        "base_dilation": (1, 1, 1, 1),
        "window_dilation": (1, 1, 1, 1),
    }


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """A convolution of two dimensions with its gradients, as XLA writes them."""

    program: _Program
    batch: int
    field: tuple[int, int]
    kernel: tuple[int, int]
    in_channels: int
    out_channels: int
    stride: int = 1
    lower: tuple[int, int] = (0, 0)
    upper: tuple[int, int] = (0, 0)
    groups: int = 1

    @property
    def out_field(self) -> tuple[int, int]:
        sizes = zip(self.field, self.kernel, self.lower, self.upper, strict=True)
        rows, columns = ((n + low + high - k) // self.stride + 1 for n, k, low, high in sizes)
        return rows, columns

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.batch, *self.out_field, self.out_channels)

    @functools.cached_property
    def weights(self) -> Op:
        shape = (*self.kernel, self.in_channels // self.groups, self.out_channels)
        return self.program.variable(*shape)

    def forward(self, source: Op) -> Op:
        return self.program.add(
            "convolution",
            self.out_shape,
            source,
            self.weights,
            input_feature_dimension=3,
            output_batch_dimension=0,
            output_feature_dimension=3,
            input_spatial_dimensions=(1, 2),
            output_spatial_dimensions=(1, 2),
            kernel_output_feature_dimension=3,
            window_size=self.kernel,
            window_stride=(self.stride,) * 2,
            window_padding=tuple(zip(self.lower, self.upper, strict=True)),
            base_dilation=(1, 1),
            window_dilation=(1, 1),
            feature_group_count=self.groups,
            batch_group_count=1,
        )

    def input_gradient(self, gradient: Op) -> Op:
        program, weights = self.program, self.weights
        turned = program.add("reverse", weights.outputs[0].shape, weights, dimensions=(0, 1))
        return program.add(
            "convolution",
            (self.batch, *self.field, self.in_channels),
            gradient,
            turned,
            input_feature_dimension=3,
            output_batch_dimension=0,
            output_feature_dimension=3,
            input_spatial_dimensions=(1, 2),
            output_spatial_dimensions=(1, 2),
            kernel_output_feature_dimension=2,
            window_size=self.kernel,
            window_stride=(1, 1),
            window_padding=tuple(self._gradient_padding(i) for i in range(2)),
            base_dilation=(self.stride,) * 2,
            window_dilation=(1, 1),
            feature_group_count=self.groups,
            batch_group_count=1,
        )

    def _gradient_padding(self, i: int) -> tuple[int, int]:
        # What the forward pass did not reach at the end has no gradient.
        reach = (self.out_field[i] - 1) * self.stride + 1
        low = self.kernel[i] - 1 - self.lower[i]
        return low, self.field[i] + self.kernel[i] - 1 - reach - low

    def weight_gradient(self, source: Op, gradient: Op) -> Op:
        reached = [
            (n - 1) * self.stride + k for n, k in zip(self.out_field, self.kernel, strict=True)
        ]
        sides = zip(reached, self.field, self.lower, strict=True)
        return self.program.add(
            "convolution",
            (*self.kernel, self.in_channels // self.groups, self.out_channels),
            source,
            gradient,
            input_feature_dimension=0,
            output_batch_dimension=2,
            output_feature_dimension=3,
            input_spatial_dimensions=(1, 2),
            output_spatial_dimensions=(0, 1),
            kernel_output_feature_dimension=3,
            window_size=self.out_field,
            window_stride=(1, 1),
            window_padding=tuple((low, n - size - low) for n, size, low in sides),
            base_dilation=(1, 1),
            window_dilation=(self.stride,) * 2,
            feature_group_count=1,
            batch_group_count=self.groups,
        )


def _convolution(row: Row) -> ModelledProgram:
    program = _Program(row.dtype)
    groups = row.number("conv-groups", 1)
    layer = _Layer(
        program=program,
        batch=row.number("batch-size"),
        field=row.pair("field"),
        kernel=row.pair("kernel-size"),
        in_channels=row.number("input-channels") * groups,
        out_channels=row.number("output-channels") * groups,
        stride=row.number("stride", 1),
        lower=row.pair("padding-lower", row.pair("padding")),
        upper=row.pair("padding-upper", row.pair("padding")),
        groups=groups,
    )
    source = program.argument(layer.batch, *layer.field, layer.in_channels)
    gradient = program.argument(*layer.out_shape)
    program.fetch(layer.forward(source))
    program.fetch(layer.input_gradient(gradient))
    program.update(layer.weights, layer.weight_gradient(source, gradient))
    return program.model(row.hardware)


def _octave_convolution(row: Row) -> ModelledProgram:
    """A convolution of channels of two resolutions, of which the second is half as fine.

    What goes to the coarser field is added up before its convolution, what goes to the finer one
    repeated after it.
    """
    octaves = _Octaves(row)
    octaves.add_forward()
    octaves.add_gradients()
    octaves.add_up()
    return octaves.program.model(row.hardware)


@dataclass(frozen=True, kw_only=True)
class _OctaveLayer:
    """The convolution from the channels of one resolution to those of another."""

    layer: _Layer
    source: int
    result: int
    taken: Op


class _Octaves:
    """What an octave convolution consists of; resolution 0 is the finer one."""

    def __init__(self, row: Row):
        self.program = _Program(row.dtype)
        batch, stride = row.number("batch-size"), row.number("stride", 1)
        alpha = row.parameters.get("alpha", "0")
        ins = _octaves(row.number("input-channels"), row.parameters.get("alpha-in", alpha))
        outs = _octaves(row.number("output-channels"), row.parameters.get("alpha-out", alpha))
        rows, columns = row.pair("field")
        fields = [(rows, columns), (rows // 2, columns // 2)]
        sources = [self._argument(batch, fields[i], ins[i], 1) for i in range(2)]
        self.gradients = [self._argument(batch, fields[i], outs[i], stride) for i in range(2)]
        self.layers = [
            _OctaveLayer(
                layer=_Layer(
                    program=self.program,
                    batch=batch,
                    field=fields[max(i, o)],
                    kernel=row.pair("kernel-size"),
                    in_channels=ins[i],
                    out_channels=outs[o],
                    stride=stride,
                    lower=row.pair("padding"),
                    upper=row.pair("padding"),
                ),
                source=i,
                result=o,
                taken=self._coarser(sources[i]) if o > i else sources[i],
            )
            for i in range(2)
            for o in range(2)
            if ins[i] and outs[o]
        ]
        self._parts: dict[tuple[str, int], list[Op]] = {}

    def _argument(self, batch: int, field: tuple[int, int], channels: int, stride: int) -> Op:
        return self.program.argument(batch, field[0] // stride, field[1] // stride, channels)

    def _coarser(self, source: Op) -> Op:
        return self.program.window(source, 2, 2, (0, 0), "add")

    def add_forward(self) -> None:
        made = self.program.together([one.layer.forward(one.taken) for one in self.layers])
        for one, found in zip(self.layers, made, strict=True):
            finer = self.program.upsampled(found) if one.source > one.result else found
            self._parts.setdefault(("result", one.result), []).append(finer)

    def add_gradients(self) -> None:
        given = [
            self._coarser(self.gradients[one.result])
            if one.source > one.result
            else self.gradients[one.result]
            for one in self.layers
        ]
        pairs = list(zip(self.layers, given, strict=True))
        made = self.program.together([one.layer.input_gradient(found) for one, found in pairs])
        for one, found in zip(self.layers, made, strict=True):
            finer = self.program.upsampled(found) if one.result > one.source else found
            self._parts.setdefault(("gradient", one.source), []).append(finer)
        gradients = self.program.together(
            [one.layer.weight_gradient(one.taken, found) for one, found in pairs]
        )
        for one, found in zip(self.layers, gradients, strict=True):
            self.program.update(one.layer.weights, found)

    def add_up(self) -> None:
        """Adds up what comes from both resolutions."""
        for parts in self._parts.values():
            self.program.fetch(functools.reduce(self.program.sum, parts))


def _octaves(channels: int, alpha: str) -> tuple[int, int]:
    coarse = round(channels * float(alpha))
    return channels - coarse, coarse


def _fully_connected(row: Row) -> ModelledProgram:
    program = _Program(row.dtype)
    groups, batch = row.number("num-groups", 1), row.number("batch-size")
    ins, outs = row.number("input-size"), row.number("output-size")
    source, gradient = program.argument(groups, batch, ins), program.argument(groups, batch, outs)
    weights = program.variable(groups, ins, outs)
    program.fetch(program.product(source, weights, (2, 1)))
    program.fetch(program.product(gradient, weights, (2, 2)))
    program.update(weights, program.product(source, gradient, (1, 1)))
    return program.model(row.hardware)


def _matrix_product(row: Row) -> ModelledProgram:
    program = _Program(row.dtype)
    m, k, n = (row.number(name) for name in "mkn")
    left, right = program.argument(1, m, k), program.argument(1, k, n)
    addend = program.argument(1, m, n)
    program.sum(addend, program.product(left, right, (2, 1)))
    return program.model(row.hardware)


def _pooling(row: Row) -> ModelledProgram:
    program = _Program(row.dtype)
    size, stride = row.pair("kernel")[0], row.number("stride", 1)
    padding = row.number("padding-lower", 0), row.number("padding-upper", 0)
    shape = (row.number("batch-size"), *row.pair("field"), row.number("channels"))
    source = program.argument(*shape)
    pooled = program.window(source, size, stride, padding, "maximum")
    program.fetch(pooled)
    gradient = program.argument(*pooled.outputs[0].shape)
    zero = program.add("constant", (), value=0.0)
    back = program.add(
        "select-and-scatter",
        shape,
        source,
        gradient,
        zero,
        operation="add",
        **_window(size, stride, padding),
    )
    program.fetch(back)
    return program.model(row.hardware)


_REDUCTIONS = {"ADD": "add", "SQUARE_ADD": "add", "MAX": "maximum"}


def _reduction(row: Row) -> ModelledProgram:
    program = _Program(row.dtype)
    shape, axes = row.numbers("shape"), row.numbers("dims")
    source = program.argument(*shape)
    how = row.parameters["operation"]
    if how == "SQUARE_ADD":
        source = program.add("multiply", shape, source, source)
    zero = program.add("constant", (), value=0.0)
    left = [n for axis, n in enumerate(shape) if axis not in axes]
    program.add("reduce", left, source, zero, dimensions=axes, operation=_REDUCTIONS[how])
    tiles = row.number("tiles-per-ipu", row.hardware.num_tiles)
    return program.model(row.hardware.with_numbers(num_tiles=tiles))


def _embedding(row: Row) -> ModelledProgram:
    """Rows of a table that are looked up, and others that are added to them."""
    program = _Program(row.dtype)
    entries, width = row.numbers("shape")
    count = row.number("num-indices")
    table = program.variable(entries, width)
    indices = program.argument(count, 1, dtype="int32")
    found = program.add(
        "gather",
        (count, width),
        table,
        indices,
        offset_dims=(1,),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, width),
        operand_batching_dims=(),
        start_indices_batching_dims=(),
        indices_are_sorted=False,
    )
    program.fetch(found)
    added = program.argument(count, width)
    updated = program.add(
        "scatter",
        (entries, width),
        table,
        indices,
        added,
        update_window_dims=(1,),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=1,
        input_batching_dims=(),
        scatter_indices_batching_dims=(),
        indices_are_sorted=False,
        unique_indices=False,
        operation="add",
    )
    program.results.append(updated.name)
    return program.model(row.hardware)


def _recurrent(row: Row) -> ModelledProgram:
    """A layer as TensorFlow for IPUs has it, which only the tracing of a step can write out."""
    import tensorflow as tf

    import ipu_keras
    from ipu_keras.ops.rnn.operations import popnn_gru, popnn_lstm

    batch, steps = row.number("batch-size"), row.number("sequence-size")
    units, width = row.number("output-size", row.number("input-size")), row.number("input-size")
    dtype = tf.as_dtype(row.dtype)
    trains = row.parameters.get("phase") == "all"
    run, num_gates, num_states = (popnn_lstm, 4, 2) if row.kind == "lstm" else (popnn_gru, 3, 1)
    options = {} if row.kind == "lstm" else {"reset_after": False}
    shapes = [[width, num_gates * units], [units, num_gates * units], [num_gates * units]]
    weights = [tf.Variable(tf.zeros(shape, dtype)) for shape in shapes]

    def forward(source):
        states = [tf.zeros([batch, units], dtype)] * num_states
        values = map(tf.convert_to_tensor, weights)
        return run(source, *states, *values, training=trains, partials_dtype=tf.float32, **options)[
            0
        ]

    def all_passes(source, gradient):
        with tf.GradientTape() as tape:
            tape.watch(source)
            found = forward(source)
        return tape.gradient(found, [source, *weights], gradient)

    source = tf.TensorSpec((steps, batch, width), dtype)
    specs = [source, tf.TensorSpec((steps, batch, units), dtype)] if trains else [source]
    step = tf.function(all_passes if trains else forward)
    return ipu_keras.profile(step, *specs, target=row.hardware).model


def _ctc_loss(row: Row) -> ModelledProgram:
    """The loss and its gradient, as TensorFlow for IPUs has it."""
    import tensorflow as tf

    import ipu_keras
    from ipu_keras.ops.ctc_loss import ctc_loss_v2

    batch, time, labels = (row.number(name) for name in ("batch", "max-time", "max-label-length"))

    def loss(labels, logits, label_length, logit_length):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            found = ctc_loss_v2(labels, logits, label_length, logit_length, 0)
        return found, tape.gradient(found, logits)

    specs = (
        tf.TensorSpec((batch, labels), tf.int32),
        tf.TensorSpec((time, batch, row.number("num-classes"))),
        tf.TensorSpec((batch,), tf.int32),
        tf.TensorSpec((batch,), tf.int32),
    )
    return ipu_keras.profile(tf.function(loss), *specs, target=row.hardware).model


_MODELLED: Mapping[str, Callable[[Row], ModelledProgram]] = {
    "conv": _convolution,
    "oct_conv": _octave_convolution,
    "fc": _fully_connected,
    "gemm": _matrix_product,
    "pooling": _pooling,
    "reduction": _reduction,
    "embedding": _embedding,
    "gru": _recurrent,
    "lstm": _recurrent,
    "ctc_loss": _ctc_loss,
}

# Kinds of rows in words.
KINDS: Mapping[str, str] = {
    "conv": "convolutions",
    "fc": "fully connected layers",
    "reduction": "reductions",
    "ctc_loss": "CTC losses",
    "embedding": "embeddings",
    "gemm": "products",
    "gru": "GRUs",
    "lstm": "LSTMs",
    "pooling": "pooling",
    "oct_conv": "octave convolutions",
}

FIGURES = ("cycles", "total_bytes", "fullest_tile_bytes")


def quantile(values: list[float], share: float) -> float:
    """The least value that so large a share of all does not exceed."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def errors() -> list[dict[str, Any]]:
    """The sizes of the errors of each kind and target, as `BenchmarkError` has them."""
    found = [compared(row) for row in rows() if row.kind not in NOT_EXPRESSED]
    return [_sizes(members) for members in _kinds(found).values()]


def _sizes(members: list[Comparison]) -> dict[str, Any]:
    sizes: dict[str, Any] = {
        "kind": KINDS[members[0].row.kind],
        "target": members[0].row.target,
        "programs": len(members),
    }
    for figure in FIGURES:
        of_figure = [abs(getattr(one, figure)) for one in members]
        sizes[figure] = round(statistics.median(of_figure), 3)
        sizes[f"{figure}_of_nine_in_ten"] = round(quantile(of_figure, 0.9), 3)
    return sizes


def _kinds(found: list[Comparison]) -> dict[str, list[Comparison]]:
    kinds: dict[str, list[Comparison]] = {}
    for one in found:
        kinds.setdefault(f"{one.row.kind}, {one.row.target}", []).append(one)
    return kinds


def _table(found: list[Comparison]) -> Table:
    table = Table(title="Median error, median and 90 % quantile of its size", title_justify="left")
    for column in ("kind", "rows", "cycles", "bytes of all tiles", "fullest tile"):
        table.add_column(column)
    for kind, members in _kinds(found).items():
        cells = []
        for figure in FIGURES:
            errors = [getattr(one, figure) for one in members]
            sizes = [abs(error) for error in errors]
            middle, size = statistics.median(errors), statistics.median(sizes)
            cells.append(f"{middle:+.1%} {size:.1%} {quantile(sizes, 0.9):.1%}")
        table.add_row(kind, str(len(members)), *cells)
    return table


def _each(found: list[Comparison]) -> Table:
    table = Table(title="Modelled divided by poplibs'", title_justify="left")
    for column in ("target", "name", "cycles", "", "bytes", "", "fullest", ""):
        table.add_column(column)
    for one in found:
        cells = []
        for figure in FIGURES:
            cells += [f"{getattr(one.row, figure):,}", f"{1 + getattr(one, figure):.2f}"]
        table.add_row(one.row.target, one.row.name, *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kinds", nargs="*", default=list(_MODELLED), choices=list(_MODELLED))
    parser.add_argument("--rows", action="store_true", help="show each row")
    args = parser.parse_args()
    console = Console()
    all_rows = rows()
    found = [compared(row) for row in all_rows if row.kind in args.kinds]
    if args.rows:
        console.print(_each(found))
    console.print(_table(found))
    left_out = [row for row in all_rows if row.kind in NOT_EXPRESSED]
    console.print(f"{len(all_rows) - len(left_out)} of {len(all_rows)} rows are expressed. Not:")
    for kind, why in NOT_EXPRESSED.items():
        names = dict.fromkeys(row.name for row in left_out if row.kind == kind)
        console.print(f"- {why}: {', '.join(names)}")


if __name__ == "__main__":
    main()

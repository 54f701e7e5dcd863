"""Small ONNX models made at random: a seed is a model, the same one every time.

Each node is computed by `onnx.reference` when it is drawn, so that shapes need no rules here, and
a node that the reference refuses, or makes infinite, is left out.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

# The axes of these operations became an input.
_AXES_ARE_INPUT = {"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13}
_REDUCTIONS_BY_INPUT = 18
# Before version 14, the reference mixes the batch's statistics into those that are given.
_NORMALIZED_AS_GIVEN = 15
# Before, rows of Hardmax have all axes behind one; the reference knows it as it is since.
_ROWS_OF_ONE_AXIS = 13
OPSETS = [11, 11, 13, 15, 17, 18]
# Larger numbers lose what they differ by.
_LARGEST = 1e4

_SMOOTH = [
    *("Tanh", "Sigmoid", "Erf", "Softplus", "Softsign", "Sin", "Cos", "Neg", "Identity"),
    *("Atan", "Sinh", "Asinh", "Exp", "Cosh", "Mish"),
]
_KINKED = [
    *("Relu", "Elu", "Selu", "LeakyRelu", "Abs", "HardSigmoid", "ThresholdedRelu"),
    *("Celu", "HardSwish"),
]
_STEPS = ["Ceil", "Floor", "Sign", "Round", "Hardmax", "Shrink"]


@dataclass
class RandomGraph:
    """A model, and what it is computed of.

    Attributes:
        opset: Version of ai.onnx.
        inputs: Arrays by name, of one micro-batch.
        initialisers: Arrays by name; floating ones of `weights` may be trained.
        nodes: In the order in which they run.
        values: What the reference computes, by name, inputs and initialisers too.
    """

    opset: int
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    initialisers: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: list[Any] = field(default_factory=list)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    weights: list[str] = field(default_factory=list)

    def proto(self, dtype: type = np.float32) -> onnx.ModelProto:
        """The model as a message, with floating numbers of a type."""
        shapes = {n: (_with(a, dtype).dtype, list(a.shape)) for n, a in self.inputs.items()}
        returned = [name for node in self.nodes for name in node.output]
        graph = helper.make_graph(
            self.nodes,
            "graph",
            [_info(name, *given) for name, given in shapes.items()],
            [_info(n, _with(self.values[n], dtype).dtype, None) for n in returned],
            [numpy_helper.from_array(_with(a, dtype), n) for n, a in self.initialisers.items()],
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8
        )

    def __str__(self):
        arrays = {n: a.shape for n, a in (self.inputs | self.initialisers).items()}
        nodes = "\n    ".join(
            f"{node.output} = {node.op_type}({', '.join(node.input)}; "
            f"{ {a.name: helper.get_attribute_value(a) for a in node.attribute} })"
            for node in self.nodes
        )
        return f"opset {self.opset}, {arrays}\n    {nodes}"


def computed(node: Any, given: dict[str, np.ndarray], opset: int) -> list[np.ndarray]:
    """The outputs of a node by `onnx.reference`, for arrays by name."""
    inputs = {name: given[name] for name in node.input if name}
    graph = helper.make_graph(
        [node],
        "node",
        [_info(name, array.dtype, array.shape) for name, array in inputs.items()],
        [helper.make_tensor_value_info(n, onnx.TensorProto.UNDEFINED, None) for n in node.output],
    )
    if node.op_type == "BatchNormalization":
        opset = max(opset, _NORMALIZED_AS_GIVEN)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return [np.asarray(each) for each in ReferenceEvaluator(model).run(None, inputs)]


def _info(name: str, dtype: np.dtype, shape: Any) -> Any:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)


def _with(array: np.ndarray, dtype: type) -> np.ndarray:
    return array.astype(dtype) if array.dtype == np.float32 else array


def random_graph(seed: int, *, smooth: bool) -> RandomGraph:
    """The model that a seed means.

    Args:
        seed: Of the model and of its numbers.
        smooth: Whether all of it has gradients.
    """
    drawn = _Drawn(seed, smooth)
    for _ in range(drawn.random.randint(2, 9)):
        drawn.random.choice(_DRAWS if smooth else _DRAWS + _OTHER_DRAWS)(drawn)
    if not drawn.graph.nodes or smooth:
        _add_bias(drawn)
    graph = drawn.graph
    taken = {name for node in graph.nodes for name in node.input}
    graph.initialisers = {n: each for n, each in graph.initialisers.items() if n in taken}
    graph.weights = [name for name in graph.weights if name in taken]
    return graph


class _Drawn:
    """A model while it is drawn: its graph, and the name of the tensor that goes on."""

    def __init__(self, seed: int, smooth: bool):
        self.random, self.smooth = Random(seed), smooth
        self.numbers = np.random.default_rng(seed)
        self.graph = RandomGraph(self.random.choice(OPSETS))
        rank = self.random.choice([1, 2, 2, 3, 3, 4, 4])
        shape = [self.random.randint(1, 5) for _ in range(rank)]
        self.graph.inputs["x"] = self.numbers.standard_normal(shape).astype(np.float32)
        self.graph.values["x"] = self.graph.inputs["x"]
        self.current = "x"

    @property
    def array(self) -> np.ndarray:
        return self.graph.values[self.current]

    def any_shape(self) -> list[int]:
        """The shape of something that broadcasts with the current tensor."""
        shape = [n if self.random.random() < 0.7 else 1 for n in self.array.shape]
        return shape[self.random.randint(0, len(shape)) :]

    def initialiser(self, array: Any, *, is_weight: bool = False) -> str:
        name = f"c{len(self.graph.initialisers)}"
        self.graph.initialisers[name] = self.graph.values[name] = np.asarray(array)
        if is_weight:
            self.graph.weights.append(name)
        return name

    def weight(self, *shape: int) -> str:
        array = self.numbers.standard_normal(shape).astype(np.float32)
        return self.initialiser(array, is_weight=True)

    def add(self, kind: str, *more: str, first: str | None = None, outputs: int = 1, **attributes):
        """Adds a node that takes the current tensor, unless the reference cannot compute it."""
        # The reference takes later operations for those of an earlier opset as well.
        if not onnx.defs.has(kind, self.graph.opset) or (
            kind == "Hardmax" and self.graph.opset < _ROWS_OF_ONE_AXIS
        ):
            return
        taken = [self.current if first is None else first, *more]
        names = [f"t{len(self.graph.values)}_{k}" for k in range(outputs)]
        name = f"n{len(self.graph.nodes)}"
        try:
            node = helper.make_node(kind, taken, names, name, **attributes)
            with np.errstate(all="ignore"):
                found = computed(node, self.graph.values, self.graph.opset)
        except Exception:
            return
        for each in found:
            if not 0 < each.size < 4000 or not (np.abs(each.astype(float)) < _LARGEST).all():
                return
        self.graph.nodes.append(node)
        self.graph.values.update(zip(names, found, strict=True))
        floating = [n for n, each in zip(names, found, strict=True) if each.dtype == np.float32]
        if floating:
            self.current = self.random.choice(floating)

    def axis(self) -> int:
        return self.random.randrange(-self.array.ndim, self.array.ndim) if self.array.ndim else 0

    def with_axes(self, kind: str, axes: list[int], **attributes) -> None:
        """Adds a node whose axes are an attribute, or an input, by the version."""
        since = _AXES_ARE_INPUT.get(kind, _REDUCTIONS_BY_INPUT)
        if self.graph.opset >= since:
            self.add(kind, self.initialiser(np.int64(axes)), **attributes)
        else:
            self.add(kind, axes=axes, **attributes)


def _add_activation(drawn: _Drawn) -> None:
    kinds = _SMOOTH + _KINKED + ([] if drawn.smooth else _STEPS)
    drawn.add(drawn.random.choice(kinds))


def _add_bias(drawn: _Drawn) -> None:
    shape = drawn.any_shape()
    drawn.add(drawn.random.choice(["Add", "Sub", "Mul"]), drawn.weight(*shape))


def _add_comparison(drawn: _Drawn) -> None:
    drawn.add(drawn.random.choice(["Max", "Min", "Mean", "Sum"]), drawn.weight(*drawn.any_shape()))


def _add_division(drawn: _Drawn) -> None:
    divisor = drawn.numbers.uniform(0.5, 2, drawn.any_shape()).astype(np.float32)
    drawn.add("Div", drawn.initialiser(divisor, is_weight=True))


def _add_product(drawn: _Drawn) -> None:
    if not drawn.array.ndim:
        return
    if drawn.array.ndim == 2 and drawn.random.random() < 0.5:
        m, k = drawn.array.shape
        n, trans_a, trans_b = drawn.random.randint(1, 4), *drawn.random.choices([0, 1], k=2)
        rows, depth = (k, m) if trans_a else (m, k)
        b = drawn.weight(*((n, depth) if trans_b else (depth, n)))
        c = drawn.weight(*drawn.random.choice([(n,), (1, n), (rows, n), (rows, 1)]))
        alpha, beta = drawn.random.uniform(0.5, 2), drawn.random.uniform(0.5, 2)
        drawn.add("Gemm", b, c, alpha=alpha, beta=beta, transA=trans_a, transB=trans_b)
        return
    drawn.add("MatMul", drawn.weight(drawn.array.shape[-1], drawn.random.randint(1, 4)))


def _add_convolution(drawn: _Drawn) -> None:
    if drawn.array.ndim not in (3, 4):
        return
    rank, channels = drawn.array.ndim - 2, drawn.array.shape[1]
    groups = drawn.random.choice([g for g in (1, 2, channels) if channels % g == 0])
    kernel = [drawn.random.randint(1, min(3, n)) for n in drawn.array.shape[2:]]
    strides = drawn.random.choices([1, 1, 2], k=rank)
    pads = drawn.random.choices([0, 0, 1], k=2 * rank)
    filters = groups * drawn.random.randint(1, 3)
    more = [drawn.weight(filters)] if drawn.random.random() < 0.5 else []
    drawn.add(
        "Conv",
        drawn.weight(filters, channels // groups, *kernel),
        *more,
        kernel_shape=kernel,
        strides=strides,
        pads=pads,
        group=groups,
    )


def _add_pooling(drawn: _Drawn) -> None:
    if drawn.array.ndim not in (3, 4):
        return
    rank = drawn.array.ndim - 2
    kinds = ["MaxPool", "AveragePool", "GlobalAveragePool"]
    # The reference takes the largest of the last two axes, whatever there are.
    kinds += ["GlobalMaxPool"] if rank == 2 else []
    kind = drawn.random.choice(kinds)
    if kind.startswith("Global"):
        drawn.add(kind)
        return
    kernel = [drawn.random.randint(1, min(3, n)) for n in drawn.array.shape[2:]]
    pads = [0] * 2 * rank
    if drawn.random.random() < 0.3 and min(kernel) > 1:
        pads = [1] * 2 * rank
    options: dict = {"strides": drawn.random.choices([1, 2], k=rank), "pads": pads}
    if kind == "AveragePool" and drawn.random.random() < 0.5:
        options["count_include_pad"] = 1
    drawn.add(kind, kernel_shape=kernel, **options)


def _add_normalization(drawn: _Drawn) -> None:
    if drawn.array.ndim < 2:
        return
    channels = drawn.array.shape[1]
    scale, shift = drawn.weight(channels), drawn.weight(channels)
    if not drawn.smooth and drawn.random.random() < 0.5:
        mean = drawn.initialiser(drawn.numbers.standard_normal(channels).astype(np.float32))
        variance = drawn.initialiser(drawn.numbers.uniform(0.5, 2, channels).astype(np.float32))
        drawn.add("BatchNormalization", scale, shift, mean, variance)
    elif drawn.array[0, 0].size > 1:
        # Of a single number nothing but the rounding of its difference from itself is left.
        drawn.add("InstanceNormalization", scale, shift)


def _add_softmax(drawn: _Drawn) -> None:
    if not drawn.array.ndim:
        return
    axis = drawn.axis()
    # Before version 13, all axes from this one on are normalised together; the reference knows
    # the later meaning alone, which is the same for the last axis.
    axis = axis if drawn.graph.opset >= 13 else -1
    drawn.add(drawn.random.choice(["Softmax", "LogSoftmax"]), axis=axis)


def _add_transposition(drawn: _Drawn) -> None:
    axes = list(range(drawn.array.ndim))
    drawn.random.shuffle(axes)
    drawn.add("Transpose", perm=axes)


def _add_shape(drawn: _Drawn) -> None:
    kind = drawn.random.choice(["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile"])
    shape = list(drawn.array.shape)
    match kind:
        case "Reshape":
            drawn.random.shuffle(shape)
            if shape and drawn.random.random() < 0.3:
                shape[drawn.random.randrange(len(shape))] = -1
            drawn.add(kind, drawn.initialiser(np.int64(shape)))
        case "Flatten":
            drawn.add(kind, axis=drawn.random.randint(0, len(shape)))
        case "Squeeze":
            ones = [axis for axis, size in enumerate(shape) if size == 1]
            if ones:
                drawn.with_axes(kind, drawn.random.sample(ones, drawn.random.randint(1, len(ones))))
        case "Unsqueeze":
            if len(shape) < 4:
                drawn.with_axes(kind, [drawn.random.randint(0, len(shape))])
        case "Expand":
            drawn.add(kind, drawn.initialiser(np.int64([drawn.random.randint(1, 3), *shape])))
        case "Tile":
            drawn.add(
                kind, drawn.initialiser(np.int64([drawn.random.randint(1, 2) for _ in shape]))
            )


def _add_reduction(drawn: _Drawn) -> None:
    kinds = ["ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceLogSumExp", "ReduceL2"]
    kinds += [] if drawn.smooth else ["ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"]
    if not drawn.array.ndim:
        return
    axes = drawn.random.sample(range(drawn.array.ndim), drawn.random.randint(1, drawn.array.ndim))
    if drawn.random.random() < 0.3:
        axes = [axis - drawn.array.ndim for axis in axes]
    drawn.with_axes(drawn.random.choice(kinds), axes, keepdims=drawn.random.randint(0, 1))


def _add_slice(drawn: _Drawn) -> None:
    if not drawn.array.ndim:
        return
    axis = drawn.axis()
    size = drawn.array.shape[axis]
    start, end = drawn.random.randint(-size, size), drawn.random.randint(-size - 1, size + 3)
    step = drawn.random.choice([1, 1, 2, -1])
    drawn.add("Slice", *(drawn.initialiser(np.int64([n])) for n in (start, end, axis, step)))


def _add_concatenation(drawn: _Drawn) -> None:
    if not drawn.array.ndim:
        return
    axis = drawn.axis()
    shape = list(drawn.array.shape)
    shape[axis] = drawn.random.randint(1, 3)
    drawn.add("Concat", drawn.weight(*shape), axis=axis)


def _add_pad(drawn: _Drawn) -> None:
    pads = drawn.random.choices([0, 0, 1, 2], k=2 * drawn.array.ndim)
    modes = ["constant", "constant", "edge"]
    # A reflection has no more than what it reflects, as in poplibs; NumPy reflects it again.
    modes += ["reflect"] if min(drawn.array.shape, default=0) > 2 else []
    mode = drawn.random.choice(modes)
    more = [drawn.initialiser(np.float32(1.5))] if drawn.random.random() < 0.5 else []
    drawn.add("Pad", drawn.initialiser(np.int64(pads)), *more, mode=mode)


def _add_gather(drawn: _Drawn) -> None:
    if not drawn.array.ndim:
        return
    axis = drawn.axis()
    size = drawn.array.shape[axis]
    shape = drawn.random.choice([(), (2,), (2, 2)])
    indices = drawn.numbers.integers(-size, size, shape).astype(np.int64)
    drawn.add("Gather", drawn.initialiser(indices), axis=axis)


def _add_along_axis(drawn: _Drawn) -> None:
    if not drawn.array.ndim:
        return
    kind = drawn.random.choice(["ArgMax", "ArgMin", "TopK", "CumSum", "Clip", "Where", "Split"])
    match kind:
        case "ArgMax" | "ArgMin":
            drawn.add(kind, axis=drawn.axis(), keepdims=drawn.random.randint(0, 1))
        case "TopK":
            count = drawn.initialiser(np.int64([drawn.random.randint(1, 3)]))
            largest = drawn.random.randint(0, 1)
            drawn.add(kind, count, outputs=2, axis=drawn.axis(), largest=largest)
        case "CumSum":
            axis = drawn.initialiser(np.int32(drawn.axis()))
            exclusive, reverse = drawn.random.choices([0, 1], k=2)
            drawn.add(kind, axis, exclusive=exclusive, reverse=reverse)
        case "Clip":
            drawn.add(kind, *(drawn.initialiser(np.float32(n)) for n in (-0.5, 0.75)))
        case "Where":
            condition = drawn.initialiser(drawn.numbers.random(drawn.any_shape()) < 0.5)
            drawn.add(kind, drawn.current, drawn.weight(), first=condition)
        case "Split":
            axis = drawn.axis()
            if drawn.array.shape[axis] == 2 and drawn.graph.opset < 18:
                drawn.add(kind, outputs=2, axis=axis)


def _add_transposed_convolution(drawn: _Drawn) -> None:
    if drawn.array.ndim != 4:
        return
    kernel, strides = (drawn.random.choices([1, 2, 3], k=2) for _ in range(2))
    pads = [drawn.random.randint(0, (n - 1) // 2) for n in kernel] * 2
    further = [drawn.random.randint(0, n - 1) for n in strides]
    drawn.add(
        "ConvTranspose",
        drawn.weight(drawn.array.shape[1], drawn.random.randint(1, 3), *kernel),
        kernel_shape=kernel,
        strides=strides,
        pads=pads,
        output_padding=further,
    )


def _add_recurrence(drawn: _Drawn) -> None:
    if drawn.array.ndim != 3:
        return
    kind, gates = drawn.random.choice([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    size, width = drawn.random.randint(1, 4), drawn.array.shape[2]
    weights = [drawn.weight(1, gates * size, width), drawn.weight(1, gates * size, size)]
    if drawn.random.random() < 0.6:
        weights.append(drawn.weight(1, 2 * gates * size))
    options = {"hidden_size": size}
    if kind == "GRU":
        options["linear_before_reset"] = drawn.random.randint(0, 1)
    drawn.add(kind, *weights, outputs=2, **options)


def _add_depth_or_space(drawn: _Drawn) -> None:
    if drawn.array.ndim != 4:
        return
    if drawn.array.shape[1] % 4 == 0:
        drawn.add("DepthToSpace", blocksize=2, mode=drawn.random.choice(["DCR", "CRD"]))
    elif not any(size % 2 for size in drawn.array.shape[2:]):
        drawn.add("SpaceToDepth", blocksize=2)


def _add_layer_normalization(drawn: _Drawn) -> None:
    if not drawn.array.ndim or drawn.graph.opset < 17 or drawn.array.shape[-1] == 1:
        return
    width = drawn.array.shape[-1]
    drawn.add("LayerNormalization", drawn.weight(width), drawn.weight(width), axis=-1)


def _add_scatter(drawn: _Drawn) -> None:
    if not drawn.array.ndim:
        return
    axis, shape = drawn.axis(), drawn.array.shape
    if drawn.random.random() < 0.5:
        indices = drawn.numbers.integers(-shape[axis], shape[axis], shape).astype(np.int64)
        drawn.add("GatherElements", drawn.initialiser(indices), axis=axis)
        return
    # Which of two updates of one element counts is not defined.
    reverse = np.arange(shape[axis])[::-1].reshape(-1, *[1] * (len(shape) - 1))
    indices = np.moveaxis(
        np.broadcast_to(reverse, np.moveaxis(drawn.array, axis, 0).shape), 0, axis
    )
    indices = drawn.initialiser(np.ascontiguousarray(indices, np.int64))
    drawn.add("ScatterElements", indices, drawn.weight(*shape), axis=axis)


def _add_power(drawn: _Drawn) -> None:
    kind = drawn.random.choice(["Pow", "PRelu", "Reciprocal", "Sqrt", "Log"])
    match kind:
        case "Pow":
            drawn.add(kind, drawn.initialiser(np.float32(drawn.random.choice([2, 3]))))
        case "PRelu":
            drawn.add(kind, drawn.weight(*drawn.any_shape()))
        # What is trained gets other inputs than these.
        case _ if not drawn.smooth and (drawn.array > 0.1).all():
            drawn.add(kind)


def _add_einsum(drawn: _Drawn) -> None:
    if drawn.array.ndim != 3 or drawn.graph.opset < 12:
        return
    equation = drawn.random.choice(["abc,cd->abd", "abc,cd->adb", "abc,cb->ab", "abc,cd->da"])
    rows = drawn.array.shape[2]
    columns = drawn.array.shape[1] if "cb" in equation else drawn.random.randint(1, 3)
    drawn.add("Einsum", drawn.weight(rows, columns), equation=equation)


def _add_local_normalization(drawn: _Drawn) -> None:
    # The reference counts samples for channels.
    if drawn.array.ndim == 4 and drawn.array.shape[0] == drawn.array.shape[1]:
        drawn.add("LRN", size=drawn.random.choice([1, 3, 5]), alpha=0.3, beta=0.6, bias=1.5)


def _add_resize(drawn: _Drawn) -> None:
    if drawn.array.ndim != 4:
        return
    factors = [1.0, 1.0, *drawn.random.choices([1.0, 2.0, 3.0], k=2)]
    mode, how = drawn.random.choice(
        [("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")]
    )
    scales = drawn.initialiser(np.float32(factors))
    empty = drawn.initialiser(np.zeros(0, np.float32))
    options = {"nearest_mode": "floor"} if mode == "nearest" else {}
    drawn.add("Resize", empty, scales, mode=mode, coordinate_transformation_mode=how, **options)


def _add_triangle(drawn: _Drawn) -> None:
    if drawn.array.ndim >= 2 and drawn.graph.opset >= 14:
        offset = drawn.initialiser(np.int64(drawn.random.randint(-2, 2)))
        drawn.add("Trilu", offset, upper=drawn.random.randint(0, 1))


def _add_comparison_of_numbers(drawn: _Drawn) -> None:
    kind = drawn.random.choice(["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"])
    before = drawn.current
    drawn.add(kind, drawn.weight(*drawn.any_shape()))
    node = drawn.graph.nodes[-1] if drawn.graph.nodes else None
    if node is not None and node.op_type == kind:
        drawn.add("Where", before, drawn.weight(), first=node.output[0])


def _add_cast(drawn: _Drawn) -> None:
    kind = drawn.random.choice([onnx.TensorProto.INT32, onnx.TensorProto.BOOL])
    drawn.add("Cast", to=kind)
    if drawn.graph.nodes and drawn.graph.nodes[-1].op_type == "Cast":
        drawn.add("Cast", first=drawn.graph.nodes[-1].output[0], to=onnx.TensorProto.FLOAT)


def _add_reversal(drawn: _Drawn) -> None:
    if drawn.array.ndim < 2:
        return
    steps, batch = drawn.array.shape[:2]
    lengths = drawn.numbers.integers(1, steps + 1, batch).astype(np.int64)
    drawn.add("ReverseSequence", drawn.initialiser(lengths), time_axis=0, batch_axis=1)


_Draw = Callable[[_Drawn], None]
_DRAWS: list[_Draw] = [
    *(_add_activation, _add_activation, _add_bias, _add_bias, _add_division, _add_product),
    *(_add_product, _add_convolution, _add_convolution, _add_pooling, _add_normalization),
    *(_add_softmax, _add_transposition, _add_shape, _add_reduction, _add_slice),
    *(_add_concatenation, _add_gather, _add_transposed_convolution, _add_recurrence),
    *(_add_recurrence, _add_depth_or_space, _add_layer_normalization, _add_scatter, _add_power),
    *(_add_einsum, _add_local_normalization, _add_resize, _add_triangle),
]
_OTHER_DRAWS: list[_Draw] = [
    *(_add_comparison, _add_pad, _add_along_axis, _add_along_axis, _add_cast, _add_reversal),
    *(_add_comparison_of_numbers,),
]

"""Says what operations of HLO graphs have to do: families, floating point operations, bytes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ipu_keras.ir.graph import (
    CHECKPOINT,
    NOT_LOWERED,
    POPLAR_CALL,
    POPNN_ACTIVATIONS,
    RELU_GRADIENT,
    Op,
)
from ipu_keras.ir.tensor_spec import TensorSpec
from ipu_keras.ir.windows import pairs_met

UNARY = frozenset(
    [
        "abs",
        "cbrt",
        "ceil",
        "cosine",
        "erf",
        "exponential",
        "exponential-minus-one",
        "floor",
        *POPNN_ACTIVATIONS.values(),
        "is-finite",
        "log",
        "log-plus-one",
        "logistic",
        "negate",
        "not",
        "imag",
        "popcnt",
        "real",
        "reduce-precision",
        "round-nearest-afz",
        "round-nearest-even",
        "rsqrt",
        "sign",
        "sine",
        "sqrt",
        "tan",
        "tanh",
        "count-leading-zeros",
    ]
)
BINARY = frozenset(
    [
        "add",
        "and",
        "atan2",
        "compare",
        "complex",
        "divide",
        "maximum",
        "minimum",
        "multiply",
        "or",
        "power",
        RELU_GRADIENT,
        *(f"{kind}-gradient" for kind in POPNN_ACTIVATIONS.values()),
        "remainder",
        "shift-left",
        "shift-right-arithmetic",
        "shift-right-logical",
        "subtract",
        "xor",
    ]
)
TERNARY = frozenset({"clamp", "select"})
ELEMENTWISE = UNARY | BINARY | TERNARY

# Operations that give a value another name or shape, and move nothing; XLA's copies say who owns
# a result, which is a matter of its own memory.
FREE = frozenset(
    [
        "after-all",
        "bitcast",
        "bitcast-convert",
        "copy",
        CHECKPOINT,
        "get-tuple-element",
        "iota",
        "opt-barrier",
        "parameter",
        "reshape",
        "tuple",
        "add-dependency",
        "get-dimension-size",
        "set-dimension-size",
        "domain",
        "partition-id",
        "replica-id",
    ]
)

# TensorFlow's draws that XLA lacks, by what they draw from.
REJECTING_DRAWS = {
    "RandomGamma": "gamma",
    "RandomPoisson": "poisson",
    "RandomPoissonV2": "poisson",
    "StatefulRandomBinomial": "binomial",
    "StatelessRandomBinomial": "binomial",
    "StatelessRandomGammaV2": "gamma",
    "StatelessRandomGammaV3": "gamma",
    "StatelessRandomPoisson": "poisson",
}

# Family by kind, for every kind that is not elementwise or free.
_FAMILIES = {
    "all-gather": "collective",
    "all-reduce": "collective",
    "all-to-all": "collective",
    "batch-norm-grad": "norm",
    "batch-norm-inference": "norm",
    "batch-norm-training": "norm",
    "broadcast": "broadcast",
    "call": "control flow",
    "collective-permute": "collective",
    "concatenate": "copy",
    "conditional": "control flow",
    "constant": "constant",
    "convert": "cast",
    "convolution": "convolution",
    "dot": "dot",
    "dynamic-slice": "dynamic slice",
    "dynamic-update-slice": "dynamic slice",
    "gather": "gather",
    "infeed": "stream copy",
    "inter-ipu-copy": "inter-IPU copy",
    "map": "elementwise",
    "outfeed": "stream copy",
    "pad": "copy",
    POPLAR_CALL: "Poplar call",
    "random": "random",
    "reduce": "reduce",
    "reduce-scatter": "collective",
    "reduce-window": "pooling",
    "reverse": "copy",
    "rng": "random",
    "rng-bit-generator": "random",
    "scatter": "scatter",
    "select-and-scatter": "pooling",
    "slice": "copy",
    "sort": "sort",
    **dict.fromkeys(REJECTING_DRAWS, "random"),
    "StatelessShuffle": "random",  # TensorFlow's: XLA lacks it
    "topk": "sort",
    "transpose": "transpose",
    "while": "control flow",
}
UNKNOWN = "unknown"


@dataclass(frozen=True)
class OpWork:
    """What one run of an operation does; a multiplication and addition are two operations."""

    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


def family_of(kind: str) -> str:
    """Returns the family of a kind of HLO operation; `"unknown"` if it has none.

    Example:

    >>> family_of("tanh"), family_of("dot"), family_of("reshape"), family_of("fft")
    ('elementwise', 'dot', 'free', 'unknown')
    """
    if kind in ELEMENTWISE:
        return "elementwise"
    return "free" if kind in FREE else _FAMILIES.get(kind, UNKNOWN)


def scanned_axis(op: Op) -> int | None:
    """Returns the axis along which each element meets all before or behind it, or `None`.

    Example:

    >>> sums = Op("s", "reduce-window", (TensorSpec((2, 5), "float32"),),
    ...           attributes={"window_size": (1, 5), "window_padding": ((0, 0), (4, 0))})
    >>> scanned_axis(sums)
    1
    """
    # XLA writes cumulative sums and products as a window that is as long as the axis, with
    # padding for all but one of its elements, and for one more if the element itself does not
    # count.
    if op.kind != "reduce-window" or "window_padding" not in op.attributes:
        return None
    sizes = op.attributes["window_size"]
    axes = [axis for axis, size in enumerate(sizes) if size > 1]
    steps = ("window_stride", "base_dilation", "window_dilation")
    if len(axes) != 1 or any(step != 1 for name in steps for step in op.attributes.get(name, ())):
        return None
    (axis,) = axes
    size, padding = sizes[axis], op.attributes["window_padding"]
    low, high = padding[axis]
    # Each window ends at its element, or begins there; exclusive, one before or behind it.
    is_scan = min(low, high) <= 0 and max(low, high) in (size - 1, size)
    length = op.outputs[0].shape[axis] - low - high + size - 1
    others = [pads for k, pads in enumerate(padding) if k != axis]
    return axis if is_scan and length == size and not any(map(any, others)) else None


def family_of_op(op: Op) -> str:
    """Returns the family of an operation: its kind's, but `"scan"` where it has a scanned axis."""
    # What XLA does not lower may have no result that is a tensor of known shape; it is unknown
    # then, of whichever kind.
    if NOT_LOWERED in op.attributes and not op.outputs:
        return UNKNOWN
    return family_of(op.kind) if scanned_axis(op) is None else "scan"


def num_elements(spec: TensorSpec) -> int:
    return math.prod(spec.shape)


def work_of(op: Op, inputs: Sequence[TensorSpec]) -> OpWork:
    """Returns the work of one operation with such inputs, without that of those that it calls.

    Example:

    >>> product = Op("p", "dot", (TensorSpec((2, 4), "float32"),),
    ...              attributes={"lhs_contracting_dimensions": (1,)})
    >>> work_of(product, [TensorSpec((2, 3), "float32"), TensorSpec((3, 4), "float32")])
    OpWork(flops=48, bytes_read=72, bytes_written=32)
    """
    family = family_of_op(op)
    if family in ("free", "constant", "control flow", "Poplar call"):
        return OpWork()
    written = sum(spec.nbytes for spec in op.outputs)
    read = sum(spec.nbytes for spec in inputs)
    # Only what is looked up is read, and only what is updated is written, in place.
    if op.kind in ("slice", "dynamic-slice", "gather"):
        read = written
    elif op.kind == "dynamic-update-slice":
        read = written = inputs[1].nbytes
    return OpWork(_flops(op, family, inputs), read, written)


def _pairs(op: Op, given: TensorSpec) -> tuple[int, int]:
    """Returns the pairs of an output and an element of the kernel, and how many meet an input.

    Zeros of padding, and between the elements of a dilated input, are not multiplied.
    """
    attributes, pairs, met = op.attributes, 1, 1
    sizes = attributes["window_size"]
    padding = attributes.get("window_padding") or [(0, 0)] * len(sizes)
    for axis, kernel in enumerate(sizes):
        field = op.outputs[0].shape[attributes["output_spatial_dimensions"][axis]]
        size = given.shape[attributes["input_spatial_dimensions"][axis]]
        dilation = attributes["base_dilation"][axis]
        found = pairs_met(
            field,
            kernel,
            attributes["window_stride"][axis],
            attributes["window_dilation"][axis],
            dilation,
            padding[axis][0],
            (size - 1) * dilation + 1,
        )
        pairs, met = pairs * field * kernel, met * int(found.sum())
    return pairs, met


def _flops(op: Op, family: str, inputs: Sequence[TensorSpec]) -> int:
    outputs = sum(map(num_elements, op.outputs))
    if family == "dot":
        contracted = op.attributes["lhs_contracting_dimensions"]
        return 2 * outputs * math.prod(inputs[0].shape[axis] for axis in contracted)
    if family == "convolution":
        pairs, met = _pairs(op, inputs[0])
        return 2 * outputs * _products_per_output(op, inputs[1]) * met // pairs
    # The initial value takes part too, so there is one operation for each element.
    if family == "reduce":
        return sum(num_elements(spec) for spec in inputs[: len(op.outputs)])
    if family == "scan":
        return num_elements(inputs[0])
    if family == "pooling":
        window = math.prod(op.attributes["window_size"])
        return window * (outputs if op.kind == "reduce-window" else num_elements(inputs[1]))
    if family == "norm":
        return 8 * num_elements(inputs[0])
    if family == "scatter":
        # A scatter that replaces computes nothing; others combine each update with an element.
        replaces = op.attributes.get("operation", "custom") == "custom"
        return 0 if replaces else num_elements(inputs[-1])
    if family in ("elementwise", UNKNOWN):
        return outputs
    return 0


def _products_per_output(op: Op, kernel: TensorSpec) -> int:
    output_features = kernel.shape[op.attributes["kernel_output_feature_dimension"]]
    return num_elements(kernel) // output_features

"""Normalizations that are written as small operations."""

from dataclasses import replace

from hlo_graphs import graph, op, variable

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.fusion import deduplicate
from ipu_keras.cost.flat.normalizations import fuse_normalizations

N, C = 1472 * 30, 16
ZERO = op("zero", "constant", (), value=0.0)


def half(name, kind, shape, *inputs, **attributes):
    return op(name, kind, shape, *inputs, dtype="float16", layer="bn", **attributes)


def full(name, kind, shape, *inputs, **attributes):
    return op(name, kind, shape, *inputs, layer="bn", **attributes)


def wide(name, vector, axis=1):
    return full(name, "broadcast", (N, C), vector, dimensions=(axis,))


def total(name, tensor, axis=0):
    shape = (C,) if axis == 0 else (N,)
    return full(name, "reduce", shape, tensor, "zero", dimensions=(axis,), operation="add")


def batch_norm():
    """As Keras does it: in float32, whatever the input is.

    mean = sum(x) / n, var = sum((x - mean)^2) / n, y = x * (gamma / sqrt(var)) + shift
    """
    return [
        ZERO,
        op("x", "parameter", (N, C), dtype="float16", role="argument"),
        variable("gamma", C),
        variable("n", C),
        full("x32", "convert", (N, C), "x"),
        total("sum", "x32"),
        full("mean", "divide", (C,), "sum", "n"),
        wide("mean_wide", "mean"),
        full("centred", "subtract", (N, C), "x32", "mean_wide"),
        full("squares", "multiply", (N, C), "centred", "centred"),
        total("power", "squares"),
        full("var", "divide", (C,), "power", "n"),
        full("root", "rsqrt", (C,), "var"),
        full("scale", "multiply", (C,), "root", "gamma"),
        wide("scale_wide", "scale"),
        full("scaled", "multiply", (N, C), "x32", "scale_wide"),
        full("offset", "multiply", (C,), "mean", "scale"),
        full("shift", "negate", (C,), "offset"),
        wide("shift_wide", "shift"),
        full("shifted", "add", (N, C), "scaled", "shift_wide"),
        half("y", "convert", (N, C), "shifted"),
    ]


def gradient():
    """Two sums of `dy`; then dx = dy * scale + a / n * (x - mean) with a vector a."""
    ops = [
        half("dy", "tanh", (N, C), "y"),
        full("dy32", "convert", (N, C), "dy"),
        total("dbeta", "dy32"),
        full("product", "multiply", (N, C), "x32", "dy32"),
        total("dgamma", "product"),
        full("a", "multiply", (C,), "dgamma", "dbeta"),
        wide("a_wide", "a"),
        wide("n_wide", "n"),
        full("a_mean", "divide", (N, C), "a_wide", "n_wide"),
        full("from_var", "multiply", (N, C), "a_mean", "centred"),
        full("from_y", "multiply", (N, C), "dy32", "scale_wide"),
        full("dx32", "add", (N, C), "from_y", "from_var"),
        half("dx", "convert", (N, C), "dx32"),
    ]
    return [replace(ops[0], layer="next"), *(replace(one, backward=True) for one in ops[1:])]


def fused(*ops, results=()):
    program = deduplicate(flatten(graph(*ops, results=results or (ops[-1].name,))))
    return fuse_normalizations(program)


def passes(program):
    """Operations, reads and writes of what was recognised."""
    return [
        (
            " ".join(member.name for member in one.ops),
            one.reads,
            [(value.name, value.spec.dtype) for value in one.writes],
        )
        for one in program.compute_sets
        if one.family in ("norm", "softmax")
    ]

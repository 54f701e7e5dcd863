"""Kinds of TensorFlow's operations, by what they mean for the host."""

import tensorflow as tf

from ipu_keras.internals.tensorflow.xla import cpu_kernels
from ipu_keras.ir import Graph, Op

# XLA's CPU convolutions lose to TensorFlow's: inside a loop by a factor of 20,
# outside one by up to 1.9.
CONVOLUTIONS = frozenset(
    {
        "Conv2D",
        "Conv2DBackpropFilter",
        "Conv2DBackpropInput",
        "Conv3D",
        "Conv3DBackpropFilterV2",
        "Conv3DBackpropInputV2",
        "DepthwiseConv2dNative",
        "DepthwiseConv2dNativeBackpropFilter",
        "DepthwiseConv2dNativeBackpropInput",
    }
)

# Operations by which users run code of this process along with a step; XLA has none of these.
HOST_OPERATIONS = frozenset({"EagerPyFunc", "PrintV2", "PyFunc", "PyFuncStateless"})

CONVOLUTION_GRADIENTS = frozenset(kind for kind in CONVOLUTIONS if "Backprop" in kind)

LOOPS = frozenset({"StatelessWhile", "While"})

# Kinds that TensorFlow traces for XLA in another way than for its own executor.
CONTROL_FLOW = LOOPS | {"Case", "If", "StatelessCase", "StatelessIf"}

# Kinds that compute each element of their result from the elements at its place.
ELEMENTWISE = frozenset(
    {
        "Abs",
        "Add",
        "AddN",
        "AddV2",
        "BiasAdd",
        "ClipByValue",
        "DivNoNan",
        "Elu",
        "Erf",
        "Exp",
        "Expm1",
        "FloorDiv",
        "LeakyRelu",
        "Log",
        "Log1p",
        "Maximum",
        "Minimum",
        "Mul",
        "Neg",
        "Pow",
        "RealDiv",
        "Reciprocal",
        "Relu",
        "Relu6",
        "Rsqrt",
        "Select",
        "SelectV2",
        "Selu",
        "Sigmoid",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Square",
        "SquaredDifference",
        "Sub",
        "Tanh",
    }
)

# Activations that TensorFlow computes along with a convolution and its bias.
FUSED_ACTIVATIONS = frozenset({"Elu", "LeakyRelu", "Relu", "Relu6"})

# Draws for which XLA has other numbers than TensorFlow's kernels, except uniform ones of
# float16. If `host/rewrites/random_bits.py` has replaced one, nothing uses it, and it does not
# count.
_DRAWS = frozenset(
    {
        "StatefulStandardNormalV2",
        "StatefulTruncatedNormal",
        "StatefulUniform",
        "StatelessMultinomial",
        "StatelessParameterizedTruncatedNormal",
        "StatelessRandomNormal",
        "StatelessRandomNormalV2",
        "StatelessRandomUniform",
        "StatelessRandomUniformV2",
        "StatelessTruncatedNormal",
        "StatelessTruncatedNormalV2",
    }
)
_DRAWN_EQUALLY = {"StatelessRandomUniform": "float16", "StatelessRandomUniformV2": "float16"}

# The kernels of these have generators of their own. Without a seed these begin anywhere, so any
# numbers are as good.
_SEEDED_DRAWS = frozenset(
    {
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "TruncatedNormal",
    }
)

# The inputs of a function have no kernel, and need none.
_INPUTS = frozenset({"Placeholder"})


def lacked_by_xla(graph: Graph) -> frozenset[str]:
    """Returns the kinds of operations in a graph for which XLA has no kernel on a CPU."""
    return graph.kinds - cpu_kernels() - _INPUTS


# Types that no program of XLA takes or returns.
_NO_ARRAYS = frozenset({tf.string, tf.variant})


def is_left_by_xla(op: tf.Operation) -> bool:
    """Whether XLA has no kernel for an operation, or cannot take or return its types.

    The functions that it calls do not count.
    """
    if op.type in _INPUTS:
        return False
    given, returned = ({tensor.dtype for tensor in each} for each in (op.inputs, op.outputs))
    is_handle = tf.resource in returned and op.type != "VarHandleOp"
    return op.type not in cpu_kernels() or is_handle or bool((given | returned) & _NO_ARRAYS)


def drawn_otherwise_by_xla(graph: Graph) -> str | None:
    """Names an operation for which XLA would draw other numbers than TensorFlow, or `None`."""
    for each in (graph, *graph.functions.values()):
        used = {name.partition(":")[0] for op in each.ops for name in op.inputs}
        used.update(name.partition(":")[0] for name in each.results)
        for op in each.ops:
            if op.name in used and _is_drawn_otherwise(op):
                return op.name
    return None


def _is_drawn_otherwise(op: Op) -> bool:
    if op.kind in _SEEDED_DRAWS:
        return any(op.attributes["seeds"])
    return op.kind in _DRAWS and _DRAWN_EQUALLY.get(op.kind) != op.outputs[0].dtype

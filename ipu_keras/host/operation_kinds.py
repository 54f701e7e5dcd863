"""Kinds of TensorFlow's operations by what they mean for the host."""

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

# What users run in this process along with a step: XLA has none of it.
HOST_OPERATIONS = frozenset({"EagerPyFunc", "PrintV2", "PyFunc", "PyFuncStateless"})

CONVOLUTION_GRADIENTS = frozenset(kind for kind in CONVOLUTIONS if "Backprop" in kind)

LOOPS = frozenset({"StatelessWhile", "While"})

# What TensorFlow traces for XLA in another way than for its own executor.
CONTROL_FLOW = LOOPS | {"Case", "If", "StatelessCase", "StatelessIf"}

# They compute each element of their result from the elements at its place.
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

# Those that TensorFlow computes along with a convolution and its bias.
FUSED_ACTIVATIONS = frozenset({"Elu", "LeakyRelu", "Relu", "Relu6"})

# What XLA draws in another way than TensorFlow's kernels, so that other numbers come out; of
# uniform ones not those of float16. What `host/rewrites/random_bits.py` replaces is not used.
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

# Their kernels have generators of their own. Without a seed these begin anywhere, and any numbers
# are as good.
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

# Inputs of a function have no kernel, and need none.
_INPUTS = frozenset({"Placeholder"})


def lacked_by_xla(graph: Graph) -> frozenset[str]:
    """The kinds of operations for which XLA has no kernel on CPU, such as reading an iterator.

    Args:
        graph: Of a traced function, with those that it calls.
    """
    return graph.kinds - cpu_kernels() - _INPUTS


# What no part of XLA's takes or returns.
_NO_ARRAYS = frozenset({tf.string, tf.variant})


def is_left_by_xla(op: tf.Operation) -> bool:
    """Whether XLA has no kernel for an operation of a graph, or none for what it takes.

    Args:
        op: It. What it calls does not count.
    """
    if op.type in _INPUTS:
        return False
    given, returned = ({tensor.dtype for tensor in each} for each in (op.inputs, op.outputs))
    is_handle = tf.resource in returned and op.type != "VarHandleOp"
    return op.type not in cpu_kernels() or is_handle or bool((given | returned) & _NO_ARRAYS)


def drawn_otherwise_by_xla(graph: Graph) -> str | None:
    """The name of an operation for which XLA would draw other numbers than TensorFlow does.

    Args:
        graph: Of a traced function, with those that it calls.

    Returns:
        `None` if there is none.
    """
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

"""Kinds of TensorFlow's operations by what they mean for the host."""

from ipu_keras.internals.tensorflow.xla import cpu_kernels
from ipu_keras.ir import Graph

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

# Inputs of a function have no kernel, and need none.
_INPUTS = frozenset({"Placeholder"})


def lacked_by_xla(graph: Graph) -> frozenset[str]:
    """The kinds of operations for which XLA has no kernel on CPU, such as reading an iterator.

    Args:
        graph: Of a traced function, with those that it calls.
    """
    return graph.kinds - cpu_kernels() - _INPUTS

"""Changes a step to another floating point precision."""

from dataclasses import replace

from ipu_keras.ir import Graph, Op, TensorSpec

# Types that tiles compute with, and so what a step can be changed to and from.
PRECISIONS = ("float16", "float32")


def with_precision(graph: Graph, dtype: str) -> Graph:
    """Returns the graph with all its numbers of one floating point type.

    This is what tracing gives when the infeed, the model and its optimizer are all made with
    that type: arguments, variables, constants, activations, gradients and the results of
    reductions. Conversions between the two types remain, and cost nothing. Other types stay as
    they are. Keras's own layers keep more in float32 under a policy of float16, such as the
    statistics of normalizations, and so need more than this says.

    Example:

    >>> from ipu_keras.ir import Graph, Op
    >>> from ipu_keras.ir import TensorSpec
    >>> graph = Graph("step", (Op("x", "parameter", (TensorSpec((3,), "float32"),)),))
    >>> with_precision(graph, "float16").ops[0].outputs
    (TensorSpec(shape=(3,), dtype='float16'),)
    """
    functions = {name: with_precision(body, dtype) for name, body in graph.functions.items()}
    ops = tuple(_converted(op, dtype) for op in graph.ops)
    return replace(graph, ops=ops, functions=functions)


def _converted(op: Op, dtype: str) -> Op:
    outputs = tuple(
        TensorSpec(spec.shape, dtype) if spec.dtype in PRECISIONS else spec for spec in op.outputs
    )
    return op if outputs == op.outputs else replace(op, outputs=outputs)

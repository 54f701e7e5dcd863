"""Makes what counts along an axis the numbers of that axis, which all other axes share.

XLA writes the numbers of classes, with which labels are compared, once for each sample. Poplar's
`popops::iota` fills tensors of one axis, and a broadcast of it is a view of the same memory.
"""

from dataclasses import replace

from ipu_keras.ir import Graph, Op, TensorSpec


def with_counters_of_one_axis(graph: Graph) -> Graph:
    """Gives counters one axis each; broadcasts of these take the counters' names.

    Example:

    >>> classes = TensorSpec((32, 10), "int32")
    >>> counter = Op("classes", "iota", (classes,), attributes={"dimensions": (1,)})
    >>> graph = with_counters_of_one_axis(Graph("step", (counter,), results=("classes",)))
    >>> [(op.name, op.kind, op.outputs[0].shape) for op in graph.ops]
    [('classes/numbers', 'iota', (10,)), ('classes', 'broadcast', (32, 10))]
    """
    functions = {name: with_counters_of_one_axis(body) for name, body in graph.functions.items()}
    ops: list[Op] = []
    for op in graph.ops:
        if op.kind == "iota" and len(op.outputs[0].shape) > 1:
            (axis,) = op.attributes["dimensions"]
            (spec,) = op.outputs
            numbers = replace(
                op,
                name=f"{op.name}/numbers",
                outputs=(TensorSpec((spec.shape[axis],), spec.dtype),),
                attributes={"dimensions": (0,)},
            )
            ops.append(numbers)
            op = replace(op, kind="broadcast", inputs=(numbers.name,))
        ops.append(op)
    return replace(graph, ops=tuple(ops), functions=functions)

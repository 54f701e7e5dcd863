"""Knows which programs are so small that they fit without a model of their cost."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ipu_keras.cost.memory_sizes import (
    AVAILABLE_MEMORY_PROPORTION,
    CONTROL_CODE_BYTES,
    EXCHANGE_CODE_BYTES,
    VERTEX_CODE_BYTES,
    VERTEX_STATE_BYTES,
)
from ipu_keras.ir import Graph, Op, TensorSpec
from ipu_keras.machine.target import Target
from ipu_keras.program.executable import Executable

# Operations whose results are values that there are already: other names or shapes for them, and
# what the operations of a called function computed.
_NAMES = frozenset(
    {
        "ExpandDims",
        "Identity",
        "IdentityN",
        "PartitionedCall",
        "ReadVariableOp",
        "Reshape",
        "Squeeze",
        "StatefulPartitionedCall",
        "StopGradient",
    }
)
# Operations that compute nothing: inputs, values that become part of what takes them, and
# shapes, which are known before.
_GIVEN = frozenset(
    {"BroadcastGradientArgs", "Const", "NoOp", "Placeholder", "Shape", "ShapeN", "Size"}
)

# What operations become at most: models of `benchmarks/models.py`, trained and not, have 0.2 to 0.8
# of the compute sets that are counted here, and 0.4 to 0.8 of the types of vertices.
# Operands of products are rearranged and their partial results summed, besides the product itself.
_PRODUCTS = ("BatchMatMul", "Conv", "DepthwiseConv", "Einsum", "MatMul")
_SETS_OF_PRODUCT = 3
# Types of vertices that are no operation's own: copies, casts and parts of products.
_SHARED_TYPES = 8
# Values that are held besides each variable where gradients are accumulated: the accumulator, the
# gradient that it becomes, and the update.
_VALUES_OF_UPDATE = 3

_LOOPS = frozenset({"While", "StatelessWhile"})
_WITHOUT_BYTES = frozenset({"resource", "string", "variant"})


def certainly_fits(
    executable: Executable,
    target: Target,
    *,
    memory_proportion: float = AVAILABLE_MEMORY_PROPORTION,
) -> bool:
    """Whether a program certainly fits into the memory of one IPU, which takes no model to say."""
    pipeline = executable.program.pipeline
    if pipeline is not None and (pipeline.forward_options or pipeline.backward_options):
        # A stage may let its products take another proportion.
        return False
    return is_small(
        executable.graph,
        executable.variables,
        target,
        accumulates=executable.program.update is not None,
        num_stages=1 if pipeline is None else pipeline.num_stages,
        memory_proportion=memory_proportion,
    )


def is_small(
    graph: Graph,
    variables: Iterable[TensorSpec],
    target: Target,
    *,
    accumulates: bool = False,
    num_stages: int = 1,
    memory_proportion: float = AVAILABLE_MEMORY_PROPORTION,
) -> bool:
    """Whether a step in TensorFlow's operations certainly fits into the memory of one IPU.

    Args:
        variables: Those of the step, and of the weight update if it is not in the step.
        accumulates: Whether the weight update is not in the step.
        memory_proportion: The largest share of a tile that temporaries of products may take.
    """
    graph = _without_unused(graph)
    # It fits if all values that it ever has fit at once, beside its code and the most that its
    # plans may take for themselves. In a pipeline, each stage's values wait for up to twice as
    # many batches as there are stages. Unknown shapes count as infinite.
    held = sum(spec.nbytes for spec in variables)
    computed = _bytes_of(graph.ops, graph)
    in_flight = 1 if num_stages == 1 else 2 * num_stages
    values = held * (1 + _VALUES_OF_UPDATE * accumulates) + computed * in_flight
    computing = [op for op in graph.walk() if op.kind not in _NAMES | _GIVEN]
    num_types = len({op.kind for op in computing}) + _SHARED_TYPES
    num_sets = sum(map(_num_sets, computing))
    code = num_types * VERTEX_CODE_BYTES + num_sets * (CONTROL_CODE_BYTES + EXCHANGE_CODE_BYTES)
    # One vertex of each on every tile, though most of their values are on few.
    state = num_sets * VERTEX_STATE_BYTES
    # The memory element that the code ends in has no values.
    besides = code + target.memory_element_bytes + state + target.stack_bytes
    room = (1 - memory_proportion) * target.tile_bytes - besides
    return values <= room * target.num_tiles and code <= target.code_region_bytes


def _without_unused(graph: Graph) -> Graph:
    """Returns the graph without results that nothing takes, which the host's replacements leave."""
    if not graph.results:
        return graph
    needed = {name.partition(":")[0] for name in graph.results}
    kept: list[Op] = []
    for op in reversed(graph.ops):
        if op.stateful or op.body or op.name in needed:
            kept.append(op)
            needed |= {name.partition(":")[0] for name in (*op.inputs, *op.after)}
    return replace(graph, ops=tuple(reversed(kept)))


def _num_sets(op: Op) -> int:
    return _SETS_OF_PRODUCT if op.kind.startswith(_PRODUCTS) else 1


def _bytes_of(ops: Sequence[Op], graph: Graph) -> float:
    """Returns the bytes of all results; those of a loop's body, as often as it can run."""
    sizes = [_nbytes(spec) for op in ops if op.kind not in _NAMES for spec in op.outputs]
    for op in ops:
        times = _times(op, graph) if op.kind in _LOOPS else 1
        for name in op.body:
            if name in graph.functions:
                # What a function is given belongs to who calls it.
                inside = [one for one in graph.functions[name].ops if one.kind != "Placeholder"]
                sizes.append(times * _bytes_of(inside, graph))
    return sum(sizes)


def _times(loop: Op, graph: Graph) -> int:
    """Returns how often a loop can run over the longest axis that it sees, or the longest list."""
    specs = list(loop.outputs)
    if any(spec.dtype == "variant" for spec in specs):
        results = {op.name: op.outputs for op in graph.walk()}
        for op in graph.walk():
            if op.kind == "TensorListStack":
                specs += op.outputs
            elif op.kind == "TensorListFromTensor":
                specs += results.get(op.inputs[0], ())
    return max((d for spec in specs for d in spec.shape), default=1)


def _nbytes(spec: TensorSpec) -> float:
    if spec.dtype in _WITHOUT_BYTES:
        return 0
    if -1 not in spec.shape:
        return spec.nbytes
    # Lists of axes, as of `BroadcastGradientArgs`, are what often has no known shape.
    return 0 if spec.dtype == "int32" and len(spec.shape) == 1 else math.inf

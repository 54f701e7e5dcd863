"""Which programs are so small that they fit without a model of their cost."""

import math
from collections.abc import Iterable, Sequence

from ipu_keras.ir import Graph, Op, TensorSpec
from ipu_keras.machine.target import Target
from ipu_keras.program.executable import Executable

# All values of a step together may fill so much of the tiles' memory. A model finds only some of
# them at a time, but also what products and exchanges need for themselves: 0.2 to 1.1 times the
# bytes of all values, and some 20,000 bytes of each tile (models of `benchmarks/models.py`).
_SHARE_OF_VALUES = 0.6
# Instructions of a tile for each operation of TensorFlow: models have 12 to 43.
_CODE_BYTES = 32

# Values that are held besides each variable where gradients are accumulated: the accumulator, the
# gradient that it becomes, and the update.
_VALUES_OF_UPDATE = 3

_LOOPS = frozenset({"While", "StatelessWhile"})
_WITHOUT_BYTES = frozenset({"resource", "string", "variant"})


def certainly_fits(executable: Executable, target: Target) -> bool:
    """Whether a program certainly fits into the memory of one IPU, which takes no model to say.

    Args:
        executable: The compiled program.
        target: The hardware.
    """
    pipeline = executable.program.pipeline
    return is_small(
        executable.graph,
        executable.variables,
        target,
        accumulates=executable.program.update is not None,
        num_stages=1 if pipeline is None else pipeline.num_stages,
    )


def is_small(
    graph: Graph,
    variables: Iterable[TensorSpec],
    target: Target,
    *,
    accumulates: bool = False,
    num_stages: int = 1,
) -> bool:
    """Whether a program certainly fits into the memory of one IPU.

    It does if all values that it ever has fit at once, with room to spare.

    Args:
        graph: A step in TensorFlow's operations.
        variables: Those of the step, and of the weight update if it is not in the step.
        target: The hardware.
        accumulates: Whether the weight update is not in the step.
        num_stages: Of a pipeline, in which each stage's values wait for up to twice as many
            batches.

    Returns:
        `False` also where shapes are unknown.
    """
    held = sum(spec.nbytes for spec in variables)
    computed = _bytes_of(graph.ops, graph)
    in_flight = 1 if num_stages == 1 else 2 * num_stages
    values = held * (1 + _VALUES_OF_UPDATE * accumulates) + computed * in_flight
    code = _CODE_BYTES * sum(1 for _ in graph.walk())
    return values <= _SHARE_OF_VALUES * target.ipu_bytes and code <= target.code_region_bytes


def _bytes_of(ops: Sequence[Op], graph: Graph) -> float:
    """Bytes of all results; those of a loop's body, as often as it can run."""
    sizes = [_nbytes(spec) for op in ops for spec in op.outputs]
    for op in ops:
        times = _times(op, graph) if op.kind in _LOOPS else 1
        for name in op.body:
            if name in graph.functions:
                # What a function is given belongs to who calls it.
                inside = [one for one in graph.functions[name].ops if one.kind != "Placeholder"]
                sizes.append(times * _bytes_of(inside, graph))
    return sum(sizes)


def _times(loop: Op, graph: Graph) -> int:
    """How often a loop can run over the longest axis that it sees, or the longest list."""
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

"""Chooses how the host runs the steps of an execution.

The choice changes speed only; results agree within float tolerance. The measurements behind it
are in docs/design/0001-host-execution.md.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from ipu_keras.host.operation_kinds import (
    CONVOLUTION_GRADIENTS,
    CONVOLUTIONS,
    ELEMENTWISE,
    FUSED_ACTIVATIONS,
    HOST_OPERATIONS,
    LOOPS,
    drawn_otherwise_by_xla,
)
from ipu_keras.host.step_order import opening_ops, sequential_ops
from ipu_keras.ir import Graph, Op
from ipu_keras.program import Program

# Operations that make it worth to compute a step in two parts. Without any, what crosses from
# one part to the other costs more than the order of steps.
_HEAVY = CONVOLUTIONS | {
    "BatchMatMul",
    "BatchMatMulV2",
    "BatchMatMulV3",
    "Einsum",
    "MatMul",
    *LOOPS,
}

# If TensorFlow goes over the images so many times for each convolution, on average, XLA is
# faster. Measured without oneDNN, `predict` of `benchmarks/models.py`'s `cnn32` with passes
# added after each activation, processor time of TensorFlow by that of XLA, medians of 15
# rounds: none 0.95, one 1.27, two 1.15, three 1.21; with batch normalization 1.19, with swish
# 1.16.
_LEAST_PASSES = 1


class HostExecution(enum.Enum):
    """The ways in which the host can run the steps of one execution.

    - `COMPILED_LOOP`: one XLA program with a loop over the steps.
    - `COMPILED_STEPS`: a TensorFlow graph that calls one XLA program for each
      step, at the same time where no state is carried from a step to the next.
    - `GRAPH_LOOP`: a TensorFlow loop over the steps, op by op.
    - `PARALLEL_LOOP`: the same with several steps at a time; only for programs
      that carry no state from a step to the next.
    """

    COMPILED_LOOP = "compiled_loop"
    COMPILED_STEPS = "compiled_steps"
    GRAPH_LOOP = "graph_loop"
    PARALLEL_LOOP = "parallel_loop"

    @property
    def is_compiled(self) -> bool:
        return self in (HostExecution.COMPILED_LOOP, HostExecution.COMPILED_STEPS)


@dataclass(frozen=True)
class HostPlan:
    """How the host runs a program, of whose steps `graph` is one.

    Args:
        executions: Ways to run it, best first; a later one is taken when an earlier one turns
            out not to support an operation.
        reason: Why the first of `executions` was chosen.
        sequential: If a step is computed in two parts, the names of the operations of the
            second: `executions` are for the first part, and a loop over the second follows.
            Else empty.
        opening: Names of operations that are in none of these parts, as a loop before them does
            them for all steps.
    """

    program: Program
    graph: Graph
    onednn: bool
    executions: tuple[HostExecution, ...]
    reason: str
    sequential: frozenset[str]
    opening: frozenset[str]


def plan_host(program: Program, graph: Graph, *, onednn: bool = False) -> HostPlan:
    """Ranks the ways to run a program by the content of its step, in TensorFlow's operations."""
    opening: frozenset[str] = frozenset()
    sequential: frozenset[str] = frozenset()
    if program.repeat_count > 1 and not program.carried:
        opening, sequential = _parts(graph)
    in_order = (graph.writes_state or bool(program.carried)) and not (opening or sequential)
    convolution = next((op.name for op in graph.walk() if op.kind in CONVOLUTIONS), None)
    compiled, reason = _compiled(program, graph, convolution, onednn=onednn)
    # Where gradients of several batches become one, calls of XLA programs at the same time gain
    # less than a loop in one program saves, unless steps are loops themselves, which leave
    # cores idle. A single batch has nothing to run at the same time, and TensorFlow's executor
    # around it takes 0.1 ms.
    accumulates = program.update is not None and not LOOPS & graph.kinds
    is_single = program.repeat_count * program.num_replicas == 1
    one_program = (in_order or accumulates or is_single) and convolution is None
    return HostPlan(
        program=program,
        graph=graph,
        onednn=onednn,
        executions=_ranked(compiled, in_order, one_program=one_program),
        reason=reason,
        sequential=sequential,
        opening=opening,
    )


def _compiled(
    program: Program, graph: Graph, convolution: str | None, *, onednn: bool
) -> tuple[bool, str]:
    """Says whether XLA compiles the step, and why or why not."""
    on_host = next((op.name for op in graph.walk() if op.kind in HOST_OPERATIONS), None)
    if on_host is not None:
        return False, f"XLA lacks {on_host}"
    if program.compiled is False:
        return False, "jit_compile=False was asked for"
    drawn_otherwise = drawn_otherwise_by_xla(graph)
    if drawn_otherwise is not None:
        return False, f"XLA draws other numbers than {drawn_otherwise}"
    if program.compiled:
        return True, "jit_compile=True was asked for"
    if convolution is None:
        return True, "no convolution"
    # With oneDNN, or in training, XLA's convolutions lose more than its fewer passes save.
    spares = not onednn and not CONVOLUTION_GRADIENTS & graph.kinds and _spares_passes(graph)
    return spares, f"convolution {convolution}{' and what follows it' if spares else ''}"


def _spares_passes(graph: Graph) -> bool:
    """Whether XLA goes over the images of convolutions much less often than TensorFlow does.

    It computes each convolution, and what is done to every element of its result, such as a
    normalization and its activation, in one loop.
    """
    called = {name for op in graph.walk() for name in op.body}
    graphs = [graph, *(graph.functions[name] for name in called if name in graph.functions)]
    num_convolutions = sum(op.kind in CONVOLUTIONS for each in graphs for op in each.ops)
    num_passes = sum(_num_passes(each.ops) for each in graphs)
    return num_passes >= _LEAST_PASSES * num_convolutions


def _num_passes(ops: Sequence[Op]) -> int:
    """Counts how often TensorFlow goes over results of convolutions, element by element.

    A bias and an activation right after it do not count, as the convolution does these.
    """
    images: set[str] = set()
    biased: set[str] = set()
    convolutions = {op.name for op in ops if op.kind in CONVOLUTIONS}
    fused = 0
    for op in ops:
        given = set(op.inputs)
        if op.kind not in ELEMENTWISE or not given & (images | convolutions):
            continue
        images.add(op.name)
        if op.kind == "BiasAdd" and given & convolutions:
            biased.add(op.name)
            fused += 1
        elif op.kind in FUSED_ACTIVATIONS and given & biased:
            fused += 1
    return len(images) - fused


def _parts(graph: Graph) -> tuple[frozenset[str], frozenset[str]]:
    """Returns what steps do in turn before, and after, their heavy operations.

    Both are empty if heavy operations have to wait for the step before.
    """
    nothing: frozenset[str] = frozenset()
    heavy = {op.name for op in graph.ops if _HEAVY & graph.of_op(op).kinds}
    if not heavy or not graph.writes_state:
        return nothing, nothing
    # Without an opening if possible: its loop over all steps comes before anything else can
    # begin.
    sequential = sequential_ops(graph)
    if not heavy & sequential:
        return nothing, sequential
    opening = opening_ops(graph, heavy)
    sequential = sequential_ops(graph, opening)
    return (nothing, nothing) if heavy & sequential else (opening, sequential)


def _ranked(compiled: bool, in_order: bool, *, one_program: bool) -> tuple[HostExecution, ...]:
    loop = HostExecution.GRAPH_LOOP if in_order else HostExecution.PARALLEL_LOOP
    if not compiled:
        return (loop,)
    if one_program:
        return (HostExecution.COMPILED_LOOP, loop)
    return (HostExecution.COMPILED_STEPS, loop)

"""The choice of how the host runs the steps of an execution.

It changes speed only; results agree within float tolerance. The measurements
behind it are in docs/design/0001-host-execution.md.
"""

import dataclasses

from ipu_keras.compiler.compilation import Compilation
from ipu_keras.compiler.step_order import opening_ops, sequential_ops
from ipu_keras.ir import Graph
from ipu_keras.program import HostExecution

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

_LOOPS = frozenset({"StatelessWhile", "While"})

# What TensorFlow traces for XLA in another way than for its own executor.
CONTROL_FLOW = _LOOPS | {"Case", "If", "StatelessCase", "StatelessIf"}

# What makes it worth to compute a step in two parts. Without them, what crosses
# from one part to the other costs more than the order of steps.
_HEAVY = CONVOLUTIONS | {
    "BatchMatMul",
    "BatchMatMulV2",
    "BatchMatMulV3",
    "Einsum",
    "MatMul",
    *_LOOPS,
}


def choose_host_execution(compilation: Compilation) -> Compilation:
    """Ranks the ways to run a program by its content.

    Args:
        compilation: A program with its traced step.

    Returns:
        The compilation with `executions`, `reason`, `sequential` and `opening` set.
    """
    graph = compilation.graph
    opening: frozenset[str] = frozenset()
    sequential: frozenset[str] = frozenset()
    if compilation.program.repeat_count > 1:
        opening, sequential = _parts(graph)
    in_order = graph.writes_state and not (opening or sequential)
    convolution = next((op.name for op in graph.walk() if op.kind in CONVOLUTIONS), None)
    on_host = next((op.name for op in graph.walk() if op.kind in HOST_OPERATIONS), None)
    asked = compilation.program.compiled
    if on_host is not None:
        compiled, reason = False, f"XLA lacks {on_host}"
    elif asked is not None:
        compiled, reason = asked, f"jit_compile={asked} was asked for"
    elif convolution is None:
        compiled, reason = True, "no convolution"
    else:
        # XLA computes a normalization, which Keras writes as many small
        # operations, along with the convolution. With TensorFlow's own
        # convolutions that is worth more than what XLA's lose; with oneDNN's,
        # or in training, it is not.
        compiled = "Rsqrt" in graph.kinds and not CONVOLUTION_GRADIENTS & graph.kinds
        compiled = compiled and not compilation.onednn
        reason = f"{'normalized ' if compiled else ''}convolution {convolution}"
    # Gradients of several batches that become one: calls of XLA programs at the same time gain
    # less than a loop in one program saves, unless steps are loops themselves, which leave
    # cores idle.
    accumulates = compilation.program.update is not None and not _LOOPS & graph.kinds
    return dataclasses.replace(
        compilation,
        executions=_ranked(
            compiled,
            in_order,
            one_program=(in_order or accumulates) and convolution is None,
        ),
        reason=reason,
        sequential=sequential,
        opening=opening,
    )


def _parts(graph: Graph) -> tuple[frozenset[str], frozenset[str]]:
    """What steps do in turn before, and after, the heavy operations; nothing if these wait."""
    nothing: frozenset[str] = frozenset()
    heavy = {op.name for op in graph.ops if _HEAVY & graph.of_op(op).kinds}
    if not heavy or not graph.writes_state:
        return nothing, nothing
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

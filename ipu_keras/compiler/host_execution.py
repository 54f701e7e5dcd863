"""The choice of how the host runs the steps of an execution.

It changes speed only; results agree within float tolerance. The measurements
behind it are in docs/design/0001-host-execution.md.
"""

import dataclasses

from ipu_keras.compiler.compilation import Compilation
from ipu_keras.ir import Graph
from ipu_keras.program import HostExecution

# XLA's CPU convolutions lose to oneDNN's: inside a loop by a factor of 20,
# outside one by 1.6 to 1.9.
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


def choose_host_execution(compilation: Compilation) -> Compilation:
    """Ranks the ways to run a program by its content.

    Args:
        compilation: A program with its traced step.

    Returns:
        The compilation with `executions` and `reason` set.
    """
    asked = compilation.program.compiled
    if asked is not None:
        compiled, reason = asked, f"jit_compile={asked} was asked for"
    else:
        convolution = _first_convolution(compilation.graph)
        compiled = convolution is None
        reason = f"convolution {convolution}" if convolution else "no convolution"
    carries_state = any(op.stateful for op in compilation.graph.walk())
    return dataclasses.replace(
        compilation, executions=_ranked(compiled, carries_state), reason=reason
    )


def _first_convolution(graph: Graph) -> str | None:
    return next((op.name for op in graph.walk() if op.kind in CONVOLUTIONS), None)


def _ranked(compiled: bool, carries_state: bool) -> tuple[HostExecution, ...]:
    loop = HostExecution.GRAPH_LOOP if carries_state else HostExecution.PARALLEL_LOOP
    return (HostExecution.COMPILED_LOOP, loop) if compiled else (loop,)

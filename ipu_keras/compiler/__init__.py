"""From a traced step to the plan of its execution.

`PASSES` is the table of contents: each pass is a pure function from a frozen
`Compilation` to the next one, so it can be tested on graphs built by hand.
"""

from ipu_keras.compiler.compilation import Compilation as Compilation
from ipu_keras.compiler.host_execution import choose_host_execution
from ipu_keras.compiler.pipeline_schedule import depth_message as depth_message
from ipu_keras.compiler.pipeline_schedule import overlap as overlap
from ipu_keras.ir import Graph
from ipu_keras.program import Program

PASSES = (choose_host_execution,)


def compile_graph(program: Program, graph: Graph, *, onednn: bool = False) -> Compilation:
    """Runs every pass over the traced step of a program.

    Args:
        program: What is to be executed.
        graph: One step of it, traced.
        onednn: Whether the host's TensorFlow computes with oneDNN.

    Returns:
        The finished `Compilation`.
    """
    compilation = Compilation(program=program, graph=graph, onednn=onednn)
    for compiler_pass in PASSES:
        compilation = compiler_pass(compilation)
    return compilation

"""The value that the compiler's passes hand to each other."""

from dataclasses import dataclass

from ipu_keras.ir import Graph
from ipu_keras.program import HostExecution, Program


@dataclass(frozen=True)
class Compilation:
    """A program on its way through the passes.

    Args:
        program: What is to be executed.
        graph: One step of it, traced.
        onednn: Whether the host's TensorFlow computes with oneDNN.
        executions: Ways to run it on the host, best first; a later one is
            taken when an earlier one turns out not to support an operation.
        reason: Why the first of `executions` was chosen, for reports.
        sequential: If the host computes a step in two parts, the names of the
            operations of the second: `executions` are of the first part, and
            a loop over the second follows. Else empty.
        opening: Names of operations that are in none of these parts, as a loop before
            them does them for all steps.
    """

    program: Program
    graph: Graph
    onednn: bool = False
    executions: tuple[HostExecution, ...] = ()
    reason: str = ""
    sequential: frozenset[str] = frozenset()
    opening: frozenset[str] = frozenset()

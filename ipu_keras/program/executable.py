"""The result of compiling a program: what the engine can run."""

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from ipu_keras.ir import Graph, TensorSpec
from ipu_keras.program import Program
from ipu_keras.program.compilation_history import CompilationHistory
from ipu_keras.program.executions import MOST_EXECUTIONS, Execution


class HostProgram(Protocol):
    """The part of an executable that computes."""

    def __call__(self, tensors: Sequence[Any]) -> Any:
        """Executes all steps once and returns the outfeed's structure."""

    def without_running(self) -> Any:
        """Returns zeros in place of what an execution returns."""

    def begin(self, num_steps: int) -> None:
        """Announces a call, such as one of `evaluate`, that runs at most `num_steps` steps."""

    def first_not_finite(self, tensors: list, prepare: Callable[[], None]) -> tuple[Any, bool]:
        """Returns where NaN or an infinity is made, and whether what is left is finite."""


@dataclass(frozen=True)
class CycleCount:
    """What the cycle counter of a tile shows after an execution, by the cost model.

    All tiles wait for each other before they exchange anything, so the counters of all of them
    show the same.

    Args:
        cycles: Cycles of one execution: all steps, and the copies between host and IPU.
    """

    tile: int
    cycles: int


@dataclass(frozen=True, kw_only=True)
class Executable:
    """A compiled program.

    Args:
        graph: One step of the program, traced.
        host: Computes an execution from a super-batch's tensors, each `(repeat_count, ...)`;
            `None` for a function that TensorFlow dispatches.
        reason: Why the host runs the steps as it does.
        variables: What the step, and a weight update that is not in it, read and write.
        as_written: Returns the step as the user wrote it, traced so that XLA can lower
            it; `None` if the host has no such trace.
        cycle_count: What the engine logs after each execution, if anything.
        history: Earlier compilations of the same model or function.
        executions: The last executions that an engine ran, oldest first.
    """

    program: Program
    graph: Graph
    host: HostProgram | None
    reason: str
    variables: tuple[TensorSpec, ...] = ()
    as_written: Callable[[], Any] = lambda: None
    cycle_count: CycleCount | None = None
    history: CompilationHistory = field(default_factory=CompilationHistory, compare=False)
    executions: deque[Execution] = field(
        default_factory=lambda: deque(maxlen=MOST_EXECUTIONS), compare=False, repr=False
    )

    @cached_property
    def in_words(self) -> str:
        """Name, steps, data and a digest of what is computed, of the same program always the same.

        Names of operations are not in the digest: they count what a process has traced before.
        """
        program = self.program
        fed = ", ".join(f"{spec.dtype}{list(spec.shape)}" for spec in program.infeed) or "nothing"
        computed = [(op.kind, op.outputs) for op in self.graph.walk()]
        states = sorted((spec.shape, spec.dtype) for spec in self.variables)
        content = repr((computed, states)).encode()
        return (
            f"{program.name} {hashlib.sha256(content).hexdigest()[:8]}, {program.repeat_count} "
            f"step(s) of {program.num_replicas} replica(s), accumulated "
            f"{program.accumulation.count}, fed {fed}"
        )

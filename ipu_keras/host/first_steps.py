"""Decides when XLA compiles a program that begins op by op.

XLA's compilation takes as long as hundreds of steps of a small model, so a program runs op by
op until so many steps are behind it, or known to come, that compiling pays. Steps are counted
and not timed, so that the same script computes the same numbers on every machine
(docs/design/0012-op-by-op-first.md).
"""

import math
import os
from collections.abc import Callable, Mapping

import tensorflow as tf

from ipu_keras.host.operation_kinds import LOOPS
from ipu_keras.ir import Graph, TensorSpec
from ipu_keras.program import Program

ENVIRONMENT_VARIABLE = "IPU_KERAS_FIRST_STEPS"

# The first `LEAST_STEPS` run op by op whatever is known to come, so that a first step takes no
# longer than stock Keras's; after `MOST_STEPS`, XLA begins whatever it gains.
LEAST_STEPS = 32
MOST_STEPS = 1024

# Fitted to processor times of sixteen models on two cores without AVX-512, which
# docs/design/0012-op-by-op-first.md lists with the counts that follow: seconds to compile a
# program at all, and for each of its operations; seconds that a step gains for each operation
# that runs, in loops and outside of them, and for each byte of the results that are written.
_TO_COMPILE = 1.05
_TO_COMPILE_AN_OPERATION = 1.9e-3
_GAINED_BY_AN_OPERATION = 5e-7
_GAINED_BY_AN_OPERATION_IN_A_LOOP = 8e-7
_GAINED_BY_A_BYTE = 1.7e-10

# Kinds that are no work for the executor, or next to none.
_FREE = frozenset({"Const", "Identity", "NoOp", "Placeholder", "ReadVariableOp", "VarHandleOp"})

# Kinds that XLA computes no faster than TensorFlow does, or that write nothing.
_AS_FAST = frozenset(
    {
        "BatchMatMul",
        "BatchMatMulV2",
        "BatchMatMulV3",
        "Einsum",
        "ExpandDims",
        "MatMul",
        "Reshape",
        "Squeeze",
        "StridedSlice",
    }
)

# A guess for the turns of a loop whose number depends on what it computes.
_UNKNOWN_TURNS = 16


def steps_before_xla(program: Program, graph: Graph) -> int:
    """Returns how many steps of a program run op by op before XLA compiles it.

    Raises a `ValueError` if the environment names neither a number of steps nor `"auto"`.
    """
    if program.first_steps is not None:
        return program.first_steps
    chosen = os.environ.get(ENVIRONMENT_VARIABLE, "auto")
    if chosen.isdecimal():
        return int(chosen)
    if chosen != "auto":
        raise ValueError(
            f"{ENVIRONMENT_VARIABLE} must be the number of steps that run op by op before XLA "
            f"compiles a program, such as 0, or 'auto'. Received: {chosen!r}"
        )
    return steps_that_pay(graph)


def steps_that_pay(graph: Graph) -> int:
    """Returns after how many steps XLA has saved the time that it took to compile them."""
    num_compiled = sum(op.kind not in _FREE for op in graph.walk())
    to_compile = _TO_COMPILE + num_compiled * _TO_COMPILE_AN_OPERATION
    gained = _gained(graph, graph.functions, _GAINED_BY_AN_OPERATION)
    return min(max(math.ceil(to_compile / max(gained, 1e-9)), LEAST_STEPS), MOST_STEPS)


def _gained(graph: Graph, functions: Mapping[str, Graph], by_an_operation: float) -> float:
    """Returns the seconds that XLA saves in one run of a graph, with the graphs that it calls."""
    seconds = 0.0
    for op in graph.ops:
        if op.kind in _FREE:
            continue
        seconds += by_an_operation
        if op.kind not in _AS_FAST:
            seconds += _GAINED_BY_A_BYTE * sum(map(_bytes_of, op.outputs))
        turns, in_called = 1, by_an_operation
        if op.kind in LOOPS:
            turns = op.attributes.get("turns", _UNKNOWN_TURNS)
            in_called = _GAINED_BY_AN_OPERATION_IN_A_LOOP
        called = [functions[name] for name in op.body if name in functions]
        seconds += turns * sum(_gained(each, functions, in_called) for each in called)
    return seconds


def _bytes_of(spec: TensorSpec) -> int:
    """Returns the bytes of numbers that a pass over elements writes; handles have none."""
    return 0 if -1 in spec.shape or not tf.as_dtype(spec.dtype).is_floating else spec.nbytes


class FirstSteps:
    """Decides before each execution whether XLA should compile its program now.

    A training may change over between any two executions. Inference whose answers have to stay
    (`Program.fixed_answers`) changes over only between two calls, and only if a weight was
    written since the last one, so that equal calls with equal weights give equal bits.
    """

    def __init__(self, count: int, *, fixed_answers: bool):
        self._count = count
        self._fixed_answers = fixed_answers
        self._num_run = 0
        # The steps of the current call, such as a `fit`, that are still to come.
        self._num_to_come = 0
        self._may_end = True

    def begin(self, num_steps: int, weights_written: Callable[[], bool]) -> None:
        """Notes that a call begins, which will run at most `num_steps`.

        `weights_written` says whether a weight was written since it was last asked. It computes
        checksums of all weights, so it is asked only if the answer counts.
        """
        self._num_to_come = num_steps
        if self._fixed_answers and self._num_run:
            self._may_end = self._num_run + num_steps > self._count and weights_written()

    def are_over(self, num_steps: int) -> bool:
        """Whether XLA should compile the program before an execution of `num_steps`."""
        after = self._num_run + num_steps
        may_end = self._may_end if self._fixed_answers else after > LEAST_STEPS
        pays = self._num_run + max(self._num_to_come, num_steps) > self._count
        return may_end and pays

    def note(self, num_steps: int) -> None:
        """Counts an execution of `num_steps` that ran op by op."""
        self._num_run += num_steps
        self._num_to_come -= num_steps
        self._may_end = False

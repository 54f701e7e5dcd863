"""Has floating point exceptions stop users' functions, with variables as they were."""

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from ipu_keras.device import IpuDevice
from ipu_keras.functions.graph_programs import GraphProgram
from ipu_keras.host.exceptions import ExceptionWatch
from ipu_keras.host.halves import with_halves
from ipu_keras.host.kept_transfers import KeptTransfers
from ipu_keras.host.replicas.replica_variables import written_variables
from ipu_keras.internals.tensorflow.functions import call_with_captures
from ipu_keras.machine.numerics import Numerics
from ipu_keras.program import Program


class WatchedCall:
    """Calls a traced function, and sees to it that exceptions stop it.

    Args:
        concrete: The trace that runs, which is for all replicas if there are several.
        programs: Those in it, or the one that it is.
        name: What an error calls the function if it has several programs.
        numerics: What a replica does by itself, and what stops it.
    """

    def __init__(
        self,
        concrete: Any,
        programs: Sequence[GraphProgram],
        name: str,
        device: IpuDevice,
        numerics: Numerics,
    ):
        self._transfers = KeptTransfers(concrete)
        self._watch = ExceptionWatch(
            watched_program(programs, name, numerics),
            lambda: concrete,
            written_variables(concrete, device.name),
            operations_of(programs),
        )
        watched = self._watch.watched(self._transfers.function)
        self._function = with_halves(watched, numerics, device.engine.rounding_keys)
        # Of another thread's execution as well, there is one copy of the variables, and one flag.
        self._one_at_a_time = threading.RLock()

    def __call__(self, *tensors: Any) -> Any:
        """Runs the function with the tensors of its arguments, and returns what it returns."""
        with self._one_at_a_time:
            self._transfers.clear()
            self._watch.begin()
            results = call_with_captures(self._function, tensors, self._function.captured_inputs)
            again = self._transfers.again(self._transfers.values())
            self._transfers.clear()
            self._watch.check(tensors, again)
        return results


def watched_program(programs: Sequence[GraphProgram], name: str, numerics: Numerics) -> Program:
    """Returns the program that an error is about; several in one function are taken together."""
    described = replace(programs[0].executable.program, numerics=numerics)
    if len(programs) == 1:
        return described
    return replace(described, name=name, repeat_count=1)


def operations_of(programs: Sequence[GraphProgram]) -> Callable[[], Collection[str]]:
    """Returns what tells the names of all operations of programs."""
    graphs = [one.executable.graph for one in programs]
    return lambda: {op.name for graph in graphs for op in graph.walk()}

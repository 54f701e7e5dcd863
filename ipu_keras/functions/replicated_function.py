"""Has all replicas of a device run the functions that users give to `strategy.run`."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.device import IpuDevice
from ipu_keras.functions.place import Place
from ipu_keras.functions.replicas import run_by_all
from ipu_keras.functions.traces_again import traced_again
from ipu_keras.host.exceptions import TilesExceptedError
from ipu_keras.host.replicas.replica_variables import ReplicaVariables
from ipu_keras.internals.tensorflow.functions import autograph_of, jit_compile_of
from ipu_keras.machine.system import SYSTEM
from ipu_keras.tracing import graph_of, replicated
from ipu_keras.tracing.frontend_attributes import numerics_scopes
from ipu_keras.tracing.replication import Needs, needing


class ReplicatedFunction:
    """A `tf.function` of a user's that all replicas of a device run, one on each of its IPUs.

    Every replica gets the same arguments. Replicas of which nobody would notice anything, as
    they exchange nothing with replica 0, and read and send nothing, are not computed.
    """

    def __init__(self, function: Any, device: IpuDevice):
        self._device = device
        self._make = lambda: tf.function(function.python_function, autograph=autograph_of(function))
        self._function = self._make()
        self._needs = Needs()
        self._jit_compile = jit_compile_of(function)
        # By the name of the trace for one replica, what is configured, and the scopes around the
        # call.
        self._programs: dict[tuple[Any, ...], tuple[ReplicaVariables, Callable]] = {}

    def __call__(self, prepared: Callable[[Any, int], Callable], /, *args, **kwargs):
        """Runs the function with its usual arguments, and returns what replica 0 returns.

        Args:
            prepared: Returns what is called for a trace, given for how many replicas that is.
        """
        args, kwargs = tf.nest.map_structure(_as_tensor, (args, kwargs))
        concrete = self.traced(args, kwargs)
        key = (concrete.name, SYSTEM.numerics, *numerics_scopes())
        if key not in self._programs:
            self._programs[key] = self._program(concrete, prepared)
        variables, run = self._programs[key]
        variables.synchronize()
        given = tf.nest.flatten((args, kwargs), expand_composites=True)
        try:
            results = run(*filter(tf.is_tensor, given))
        except TilesExceptedError:
            # All replicas have the values from before, which were synchronized.
            variables.note_execution()
            raise
        variables.note_execution()
        return results

    def traced(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Returns the trace of one replica that a call with these arguments runs."""
        tensors = tf.nest.map_structure(_as_tensor, (args, kwargs))
        given, named = tf.nest.map_structure(_spec, tensors)
        ipus_each = self._needs.ipus_each
        try:
            return self._trace(given, named)
        except ValueError as error:
            if self._needs.ipus_each == ipus_each:
                raise
            # What follows a collective shows how many IPUs each replica has.
            self._function = self._make()
            with contextlib.suppress(ValueError), traced_again():
                return self._trace(given, named)
            raise error

    def _trace(self, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
        with needing(self._needs), replicated(len(self._device.ipus), shards="shared"):
            return self._function.get_concrete_function(*given, **named)

    def _program(
        self, concrete: Any, prepared: Callable[[Any, int], Callable]
    ) -> tuple[ReplicaVariables, Callable]:
        graph = graph_of(concrete)
        found = run_by_all(concrete, graph, Place(self._device), jit_compile=self._jit_compile)
        variables, run = found or (ReplicaVariables([concrete], 1, self._device), concrete)
        return variables, prepared(run, 1 if found is None else len(self._device.ipus))


def _as_tensor(value: Any) -> Any:
    """Makes tensors of NumPy's arrays, as TensorFlow does where it calls a function itself."""
    return tf.convert_to_tensor(value) if isinstance(value, np.ndarray | np.generic) else value


def _spec(value: Any) -> Any:
    return tf.TensorSpec(value.shape, value.dtype) if tf.is_tensor(value) else value

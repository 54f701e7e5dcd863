"""Functions that users give to `strategy.run`, run by all replicas of a device together."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.device import IpuDevice
from ipu_keras.functions.parts_for_xla import is_worth_compiling
from ipu_keras.functions.place import Place
from ipu_keras.host.operation_kinds import lacked_by_xla
from ipu_keras.host.replica_variables import ReplicaVariables
from ipu_keras.host.segments import replicate
from ipu_keras.internals.tensorflow.functions import autograph_of, jit_compile_of
from ipu_keras.tracing import EXCHANGES, graph_of, replicated
from ipu_keras.tracing.replication import num_shards_of


class ReplicatedFunction:
    """A `tf.function` of a user's that all replicas of a device run together.

    Every replica gets the same arguments. Replicas whose results nobody sees, as they exchange
    nothing with replica 0, are not computed.

    Args:
        function: A `tf.function`.
        device: It has an IPU for each replica.
    """

    def __init__(self, function: Any, device: IpuDevice):
        self._device = device
        self._function = tf.function(function.python_function, autograph=autograph_of(function))
        self._jit_compile = jit_compile_of(function)
        # By the name of the trace of one replica.
        self._programs: dict[str, tuple[ReplicaVariables, Callable]] = {}

    def __call__(self, *args, **kwargs):
        """Runs the function.

        Args:
            *args: As the function takes them.
            **kwargs: As the function takes them.

        Returns:
            What replica 0 returns.
        """
        concrete = self.traced(args, kwargs)
        if concrete.name not in self._programs:
            self._programs[concrete.name] = self._program(concrete)
        variables, run = self._programs[concrete.name]
        variables.synchronize()
        given = tf.nest.flatten((args, kwargs), expand_composites=True)
        results = run(*filter(tf.is_tensor, given))
        variables.note_execution()
        return results

    def traced(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The trace of one replica that a call runs, a `tf.ConcreteFunction`.

        Args:
            args: Positional arguments of the function.
            kwargs: Its keyword arguments.
        """
        given, named = tf.nest.map_structure(_spec, (args, kwargs))
        with replicated(len(self._device.ipus), shards="shared"):
            return self._function.get_concrete_function(*given, **named)

    def _program(self, concrete: Any) -> tuple[ReplicaVariables, Callable]:
        graph = graph_of(concrete)
        if not EXCHANGES & graph.kinds:
            return ReplicaVariables(concrete, 1, self._device), concrete
        num_replicas = Place(self._device).num_replicas_with_shards(num_shards_of(concrete.graph))
        variables = ReplicaVariables(concrete, num_replicas, self._device)
        lacks_some = bool(lacked_by_xla(graph))
        together = replicate(
            concrete,
            num_replicas,
            variables.captures_of,
            parts_for_xla=bool(self._jit_compile)
            and lacks_some
            and is_worth_compiling(concrete, graph),
        )

        def run(*tensors):
            return together([list(tensors)] * num_replicas)[0]

        compiled = self._jit_compile and not lacks_some
        return variables, tf.function(run, autograph=False, jit_compile=compiled)


def _spec(value: Any) -> Any:
    return tf.TensorSpec(value.shape, value.dtype) if tf.is_tensor(value) else value

"""The variables of replicas: shared ones, and copies of those that replicas write."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.device import IpuDevice
from ipu_keras.device.placement import ordinal_of_placement
from ipu_keras.host.replicas.layer_streams import LAYER_STATE, serve_layers
from ipu_keras.internals.tensorflow.functions import read_only_inputs
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.internals.tensorflow.variables import contents_of, plain_variable, variable_of
from ipu_keras.tracing.extraction import feeds_of

# The states of random generators by the names of their variables, with the position of the
# number that tells streams apart. Keras's state is (seed, counter), that of
# `tf.random.Generator` (counter, counter, key).
_RANDOM_STATES = {LAYER_STATE: 0, "StateVar": -1}

# The distance between the seeds of replicas is the golden ratio in 32 bits, as in generators
# that split streams: a small distance would make the seeds 1 and 2 of a user share streams.
_SEED_DISTANCE = 0x9E3779B9


class ReplicaVariables:
    """What each replica of a program has for the variables that its functions write.

    Replica 0 has the variables themselves. The others have copies, so that what they write
    differs; when they are synchronized, they take the values of replica 0. Streams of random
    numbers differ, unless the device was told to give all replicas the same.

    Args:
        inside: The variables of programs that the functions call. Copies among these get no
            copies, and are used here for the variables that they are copies of.
    """

    def __init__(
        self,
        functions: Sequence[Any],
        num_replicas: int,
        device: IpuDevice,
        inside: Sequence["ReplicaVariables"] = (),
    ):
        self._device = device
        # What the device had counted after the last execution: if it counts more, something
        # else has written.
        self._last_state: tuple[int, int, bool] | None = None
        found = [v for one in functions for v in written_variables(one, device.name)]
        serve_layers(found, device.engine)
        several = {variable.handle.ref(): variable for variable in found if num_replicas > 1}
        made: dict[Any, list[Any]] = {}
        for other in inside:
            made.update(other._copies)
        for copy in itertools.chain(*(c for other in inside for c in other._copies.values())):
            several.pop(copy.handle.ref(), None)
        self._originals = list(several.values())
        # By the `ref()` of a variable's handle, a copy for each replica but the first.
        self._copies: dict[Any, list[Any]] = {
            reference: made.get(reference) or [_copy(variable) for _ in range(1, num_replicas)]
            for reference, variable in several.items()
        }

    def captures_of(self, replica: int) -> Mapping[Any, tf.Tensor]:
        """Returns what a replica has instead of captured handles, by `ref()` of these."""
        if replica == 0:
            return {}
        return {original: copies[replica - 1].handle for original, copies in self._copies.items()}

    @property
    def copies(self) -> list[Any]:
        """The variables of all replicas but the first."""
        return [copy for copies in self._copies.values() for copy in copies]

    def synchronize(self) -> None:
        """Before an execution, gives all replicas the values of replica 0, if need be.

        Loading a program onto IPUs does the same. Replicas keep their own values as long as
        nothing but this program may have written any. In a graph that is being built,
        operations of that graph do it.
        """
        # Values are not compared: a metric that was reset to what it had been would go
        # unnoticed.
        if not self._originals or self._state() == self._last_state:
            return
        for original, copies in zip(self._originals, self._copies.values(), strict=True):
            for replica, copy in enumerate(copies, start=1):
                copy.assign(_value(original, self._distance(replica)))

    def note_execution(self) -> None:
        """After an execution, remembers what was written until then."""
        if self._originals:
            self._last_state = self._state()

    def _state(self) -> tuple[int, int, bool]:
        engine = self._device.engine
        return self._device.num_writes, engine.num_seedings, engine.identical_replicas

    def _distance(self, replica: int) -> int:
        return 0 if self._device.engine.identical_replicas else _SEED_DISTANCE * replica


def written_variables(concrete: Any, device_name: str) -> list[Any]:
    """Returns the variables that a traced function writes.

    Those known by their handles alone count only if they are on the named device.
    """
    # The trace has not noticed variables that only kernels read and write, such as the slots of
    # TensorFlow 1's optimizers. These are known by their handles alone.
    noticed = {variable.handle.ref(): variable for variable in concrete.graph.variables}
    written = written_captures(concrete)
    # Tables of embeddings on the host are used by kernels too, but shared by all replicas.
    return [
        noticed[handle.ref()] if handle.ref() in noticed else _variable_of(handle)
        for handle in written
        if handle.ref() in noticed or _is_on(handle.device, device_name)
    ]


def is_random_state(variable: Any) -> bool:
    """Whether a variable is the state of a generator of random numbers."""
    return _position_of_seed(variable) is not None


def _position_of_seed(variable: Any) -> int | None:
    return _RANDOM_STATES.get(_name(variable).rpartition("/")[2])


def written_captures(concrete: Any) -> list[tf.Tensor]:
    """Returns the captured handles of variables that a traced function writes, in their order.

    Example:

    >>> count, weights = tf.Variable(0.0), tf.Variable(1.0)
    >>> step = tf.function(lambda: count.assign_add(weights)).get_concrete_function()
    >>> [handle is count.handle for handle in written_captures(step)]
    [True]
    """
    read_only = set(read_only_inputs(concrete.graph))
    num_feeds = len(feeds_of(concrete))
    return [
        outer
        for index, (outer, _) in enumerate(concrete.graph.captures, start=num_feeds)
        if index not in read_only and _is_variable(outer)
    ]


def _is_variable(handle: tf.Tensor) -> bool:
    return handle.dtype == tf.resource and contents_of(handle) is not None


def _is_on(device: str, device_name: str) -> bool:
    """Whether a variable is on a device; in a session's graph it is wherever it is used.

    In a session of a server its device is one of the server's job, and not of this process's.
    """
    return not device or ordinal_of_placement(device) == ordinal_of_placement(device_name)


def _variable_of(handle: tf.Tensor) -> Any:
    """Makes a variable of a handle alone, which has no name."""
    [(shape, dtype)] = contents_of(handle) or []
    return variable_of(handle, shape, dtype)


def _copy(variable: tf.Variable) -> tf.Variable:
    """Makes a variable like another one, which gets its value when the program runs.

    It is made outside of all functions, because one that is being traced may make none any
    more.
    """
    name = f"{_name(variable)}_of_replica"
    with tf.init_scope():
        if tf.executing_eagerly():
            with tf.device(variable.device):
                zeros = tf.zeros(variable.shape, variable.dtype)
                return plain_variable(zeros, trainable=False, name=name)
        # In a collection of the graph, users' scripts would initialize it, and checkpoints
        # would have it.
        return tf.compat.v1.Variable(
            tf.zeros(variable.shape, variable.dtype),
            trainable=False,
            collections=[],
            name=name,
            use_resource=True,
        )


def _value(variable: tf.Variable, distance: int) -> tf.Tensor:
    """Returns what a replica's copy holds when it is synchronized."""
    value = variable.read_value()
    position = _position_of_seed(variable)
    if position is None:
        return value
    distances = [0] * static_sizes(value)[0]
    distances[position] = distance
    return value + tf.constant(distances, value.dtype)


def _name(variable: tf.Variable) -> str:
    return variable.name.partition(":")[0]

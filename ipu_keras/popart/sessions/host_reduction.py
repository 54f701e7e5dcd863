"""Gradients that callbacks of the host reduce, and weights that they update: `hostAllReduce`.

A program copies each gradient to the host after a batch, through one stream for each weight, and
goes on with what another stream brings back: the gradient as it was reduced, or with
`hostWeightUpdate` the weight as it was updated. What happens in between is up to the callbacks.
"""

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception, poplar_exception
from ipu_keras.popart.operations.values import LaidOutTensor
from ipu_keras.popart.options.prefixes import reservedGradientPrefix
from ipu_keras.popart.sessions.weights import Weights
from ipu_keras.tracing.poplar_operation import OUTSIDE_COMPILATION, poplar_operation
from ipu_keras.tracing.replication import replica_index

GRADIENT_STORE = "gradientStoreStream__"
GRADIENT_LOAD = "gradientLoadStream__"
WEIGHT_LOAD = "weightLoadStream__"

# PopART's callbacks get a pointer in a capsule; ctypes makes one without a module of C.
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p


@dataclass
class _Connection:
    """One replica's end of a stream: its memory on the host, and the callback that uses it."""

    callback: Callable[[Any], None]
    memory: np.ndarray

    def call(self) -> None:
        self.callback(_capsule(self.memory.ctypes.data, None, None))


@dataclass(eq=False)
class HostReduction:
    """The streams of a session between its device and callbacks of the host.

    Args:
        weights: The trained weights by name; gradients have their shapes and types.
        updates_weights: Whether callbacks give weights back, and not gradients.
    """

    weights: Mapping[str, np.ndarray]
    num_replicas: int
    updates_weights: bool
    _connections: dict[tuple[str, int], _Connection] = field(default_factory=dict)

    @property
    def streams(self) -> list[str]:
        """Names of both streams of each weight: the one that stores, then the one that loads."""
        return [stream for name in self.weights for stream in self._streams_of(name)]

    def connect(self, stream: str, callback: Callable[[Any], None], replica: int) -> None:
        """Connects a stream of a replica to a callback, which takes a capsule with an address.

        Raises a `popart_exception` if there is no such stream or replica, and a `TypeError` if
        `callback` cannot be called.
        """
        if not callable(callback):
            raise TypeError(
                "A callback of a stream is called with a capsule that has the address of its "
                f"memory. Received: {callback!r} of type {type(callback).__name__}"
            )
        owners = {each: name for name in self.weights for each in self._streams_of(name)}
        if stream not in owners:
            raise popart_exception(
                f"There is no stream {stream!r} to connect to a callback. There are: "
                f"{', '.join(owners)}."
            )
        if replica not in range(self.num_replicas):
            raise popart_exception(
                f"The stream {stream!r} is to be connected for replica {replica}, and there are "
                f"{self.num_replicas}, numbered from 0."
            )
        array = self.weights[owners[stream]]
        memory = np.zeros(array.shape, array.dtype)
        self._connections[stream, replica] = _Connection(callback, memory)

    def check_connected(self, names: Sequence[str]) -> None:
        """Raises a `popart_exception` if a stream of a weight with gradients has no callback."""
        for name in names:
            for stream in self._streams_of(name):
                for replica in range(self.num_replicas):
                    if (stream, replica) not in self._connections:
                        raise popart_exception(
                            f"The stream {stream!r} of replica {replica} is not connected, as "
                            "SessionOptions.hostAllReduce needs. Call connectStreamToCallback "
                            "before run, for each of getHostReduceStreamIds() and each replica."
                        )

    def apart(self, gradient: tf.Tensor) -> tf.Tensor:
        """Returns a gradient as `apart` does, for as many replicas as the host reduces."""
        return apart(gradient, self.num_replicas)

    def together(self, gradients: tf.Tensor) -> tf.Tensor:
        """Adds up gradients of replicas, `(num_replicas, ...)`."""
        return tf.reduce_sum(gradients, axis=0)

    def __call__(
        self, gradients: Mapping[str, tf.Tensor], weights: Weights
    ) -> dict[str, tf.Tensor]:
        """Returns what callbacks give back for gradients, in the graph that is being traced.

        Gradients come in their own types, weights in theirs; both in the device's order of axes.

        Args:
            gradients: By name of weight, `(num_replicas, ...)`, in the device's order of axes.
        """
        names = list(gradients)
        types = [tf.as_dtype(self.weights[name].dtype) for name in names]
        stored = [
            tf.cast(all_in_model(gradients[name], weights.order(name)), dtype)
            for name, dtype in zip(names, types, strict=True)
        ]
        # The device keeps the program, and must not keep callbacks, which may keep the device.
        this = weakref.ref(self)

        def exchange(*arrays: np.ndarray) -> list[np.ndarray]:
            reduction = this()
            assert reduction is not None, "the session that runs has it"
            return reduction._exchanged(dict(zip(names, arrays, strict=True)))

        with poplar_operation(OUTSIDE_COMPILATION):
            loaded = tf.numpy_function(exchange, stored, types, stateful=True)
            shaped = [
                tf.ensure_shape(each, self.weights[name].shape)
                for name, each in zip(names, loaded, strict=True)
            ]
        results = {
            name: LaidOutTensor(each).in_order(weights.order(name))
            for name, each in zip(names, shaped, strict=True)
        }
        if self.updates_weights:
            return results
        return {name: tf.cast(each, gradients[name].dtype) for name, each in results.items()}

    def _exchanged(self, gradients: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Lets callbacks read the gradients, and then write what the device goes on with."""
        for name, of_replicas in gradients.items():
            for replica, gradient in enumerate(of_replicas):
                stream, _ = self._streams_of(name)
                self._connections[stream, replica].memory[...] = gradient
                self._call(stream, replica)
        # Only now: a callback that loads may need the gradients of all weights and replicas.
        return [self._loaded(self._streams_of(name)[1]) for name in gradients]

    def _loaded(self, stream: str) -> np.ndarray:
        for replica in range(self.num_replicas):
            self._call(stream, replica)
        found = [self._connections[stream, r].memory for r in range(self.num_replicas)]
        for replica, other in enumerate(found):
            if not np.array_equal(found[0], other, equal_nan=True):
                raise poplar_exception(
                    f"Callbacks of the stream {stream!r} have given replica {replica} other "
                    "numbers than replica 0. Replicas of a session have the same weights here: "
                    "give all of them the same."
                )
        # Callbacks keep the address, and write there again while TensorFlow may still read the
        # array.
        return found[0].copy()

    def _call(self, stream: str, replica: int) -> None:
        try:
            self._connections[stream, replica].call()
        except Exception as error:
            raise poplar_exception(
                f"The callback of the stream {stream!r} for replica {replica} failed: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _streams_of(self, name: str) -> tuple[str, str]:
        gradient = reservedGradientPrefix() + name
        load = WEIGHT_LOAD + name if self.updates_weights else GRADIENT_LOAD + gradient
        return GRADIENT_STORE + gradient, load


def apart(gradient: tf.Tensor, num_replicas: int) -> tf.Tensor:
    """Returns a replica's gradient as `(num_replicas, ...)`, with zeros for the other replicas.

    Programs add up what replicas return; so their gradients stay apart in the sum.
    """
    mine = tf.one_hot(replica_index(), num_replicas, dtype=gradient.dtype)
    return tf.tensordot(mine, gradient, axes=0)


def all_in_model(tensors: tf.Tensor, order: Any) -> tf.Tensor:
    """Returns tensors of replicas, `(num_replicas, ...)`, with their axes as in the model."""
    return tf.stack([LaidOutTensor(each, order=order).tensor for each in tf.unstack(tensors)])

"""The initialisers of a model: as users read and write them, and as a device has them."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.values import Order, Value


class Weights:
    """The weights of a session.

    Those of the host and those of the device are two sets, which `to_device` makes the same.

    Args:
        arrays: By name of tensor, in the types of the device.
        are_known: Whether they never change, so that operations may ask for values while tracing.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], *, are_known: bool):
        self._host = dict(arrays)
        self._device = ""
        self._are_known = are_known
        self._variables: dict[tuple[str, Order], tf.Variable] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._host

    def host_value(self, name: str) -> np.ndarray:
        """The host's array of a weight."""
        return self._host[name]

    def place(self, device: str) -> None:
        """Says which TensorFlow device gets them, before anything is traced.

        Args:
            device: Its name. On another one than before, they are made anew.
        """
        if device != self._device:
            self._device = device
            self._variables.clear()

    def value(self, name: str) -> Value:
        """A weight for the graph that is being traced, which reads the device's.

        Args:
            name: Of the tensor.
        """
        host = self._host[name]
        return Value(
            known=host if self._are_known else None,
            read=lambda order: self._variable(name, order).read_value(),
            shape=host.shape,
            dtype=tf.as_dtype(host.dtype),
            is_weight=True,
        )

    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Changes the host's weights.

        Args:
            arrays: By name of tensor.

        Raises:
            popart_exception: There is no such weight, or one has another shape or type. Nothing
                is changed.
        """
        unknown = [name for name in arrays if name not in self._host]
        if unknown:
            raise popart_exception(
                f"There is no weight {unknown[0]!r} in the model. There are: "
                f"{', '.join(self._host) or 'none'}."
            )
        for name, array in arrays.items():
            _check_like(name, array, self._host[name])
        self._host.update({name: np.array(array) for name, array in arrays.items()})

    def to_device(self) -> None:
        """Gives the device the host's weights."""
        for (name, order), variable in self._variables.items():
            variable.assign(_in_order(self._host[name], order))

    def _variable(self, name: str, order: Order) -> tf.Variable:
        # A convolution wants its kernel in another order than the model has it: there is a
        # variable for each order that somebody reads, as transposing in each step takes long.
        if (name, order) not in self._variables:
            with tf.init_scope(), tf.device(self._device):
                # `tf.function` would trace a step anew that had it make variables.
                self._variables[name, order] = tf.Variable(
                    _in_order(self._host[name], order),
                    trainable=False,
                    experimental_enable_variable_lifting=False,
                )
        return self._variables[name, order]


class RandomSeeds:
    """What random operations of a session draw from: a seed, and how many steps there were.

    Args:
        is_shared: Whether users may read and write it.
    """

    def __init__(self, *, is_shared: bool):
        self._is_shared = is_shared
        self._device = ""
        self._state: tf.Variable | None = None
        self._seed = 0

    def place(self, device: str) -> None:
        """Says which TensorFlow device counts, before anything is traced.

        Args:
            device: Its name. On another one than before, it begins anew.
        """
        if device != self._device:
            self._device, self._state = device, None

    def set_seed(self, seed: int) -> None:
        """Begins anew with a seed.

        Args:
            seed: Any integer; its lowest 31 bits count.
        """
        self._seed = seed & 0x7FFFFFFF
        if self._state is not None:
            self._state.assign([self._seed, 0])

    def state(self) -> list[int]:
        """Seed and number of steps.

        Raises:
            popart_exception: It was not to be read.
        """
        self._check_shared("getRNGState")
        return [self._seed, 0] if self._state is None else self._state.numpy().tolist()

    def set_state(self, state: Sequence[int]) -> None:
        """Goes on where another session of the same program was.

        Args:
            state: As `state` gave it.

        Raises:
            popart_exception: It was not to be written, or is none.
        """
        self._check_shared("setRNGState")
        if len(state) != 2:
            raise popart_exception(
                f"A state of random operations has 2 numbers. Received: {len(state)}"
            )
        self._seed, count = state
        if self._state is not None:
            self._state.assign([self._seed, count])

    def _check_shared(self, method: str) -> None:
        if not self._is_shared:
            raise popart_exception(
                f"Trying to use {method}, but SessionOptions.enableLoadAndOffloadRNGState is not "
                "set. Set it to True."
            )

    def of_step(self) -> tf.Tensor:
        """The seed of the step that is being traced, which counts it: `(2,)` int32."""
        if self._state is None:
            with tf.init_scope(), tf.device(self._device):
                self._state = tf.Variable(
                    [self._seed, 0],
                    dtype=tf.int32,
                    trainable=False,
                    experimental_enable_variable_lifting=False,
                )
        before = self._state.read_value()
        with tf.control_dependencies([before]):
            self._state.assign_add([0, 1])
        return before


def _in_order(array: np.ndarray, order: Order) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(order.permutation(array.ndim)))


def _check_like(name: str, array: np.ndarray, weight: np.ndarray) -> None:
    if array.shape != weight.shape or array.dtype != weight.dtype:
        raise popart_exception(
            f"The weight {name} is {weight.dtype.name} of the shape {list(weight.shape)}. "
            f"Received: {array.dtype.name} of the shape {list(array.shape)}"
        )

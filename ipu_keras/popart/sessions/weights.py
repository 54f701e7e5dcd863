"""The initialisers of a model: as users read and write them, and as a device has them."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.values import LaidOutTensor, Order
from ipu_keras.popart.options.logger import getLogger
from ipu_keras.settings.arguments import integer_in


class Weights:
    """The weights of a session, and what its optimizer keeps.

    Those of the host and those of the device are two sets, which `to_device` makes the same.
    What was last fetched from the device is a third.

    Args:
        arrays: Arrays by name of tensor, in the types of the device.
        are_known: Whether they never change, so that operations may ask for values while tracing.
        owners: For each tensor that steps change, the trained weight whose order of axes it has;
            weights own themselves.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        *,
        are_known: bool,
        owners: Mapping[str, str] | None = None,
    ):
        self._host = dict(arrays)
        self._device = ""
        self._place: tuple[str, int] | None = None
        self._are_known = are_known
        self._owners = dict(owners or {})
        self._orders: dict[str, Order] = {}
        self._variables: dict[tuple[str, Order], tf.Variable] = {}
        self._fetched: dict[str, np.ndarray] = {}
        self.are_on_device = False

    def __contains__(self, name: str) -> bool:
        return name in self._host

    def __len__(self) -> int:
        return len(self._host)

    def host_value(self, name: str) -> np.ndarray:
        return self._host[name]

    def place(self, device: str, attachment: int) -> None:
        """Names the TensorFlow device of the variables, before anything is traced.

        Args:
            attachment: How often the device was attached. What it held is gone after each time.
        """
        if (device, attachment) != self._place:
            self._place, self._device = (device, attachment), device
            self._variables.clear()
            self._orders.clear()
            self.are_on_device = False

    def value(self, name: str) -> LaidOutTensor:
        """Returns a weight for the graph that is being traced, which reads the variable."""
        host = self._host[name]
        return LaidOutTensor(
            known=host if self._are_known else None,
            read=self._read_once(name) if name in self._owners else self._reads(name),
            shape=host.shape,
            dtype=tf.as_dtype(host.dtype),
            is_weight=True,
        )

    def order(self, name: str) -> Order:
        """Returns the order of axes in which the device has a tensor that steps change.

        A trained weight has one once a step has read it.
        """
        owner = self._owners[name]
        # A state of another rank, such as one scalar of a weight, has no axes to permute.
        is_like = self._host[name].ndim == self._host[owner].ndim
        return self._orders.get(owner, Order.ONNX) if is_like else Order.ONNX

    def is_read(self, name: str) -> bool:
        """Whether a step that was traced reads a trained weight."""
        return name in self._orders

    def variable(self, name: str) -> tf.Variable:
        """Returns the variable of a tensor that steps change."""
        return self._variable(name, self.order(name))

    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Changes the host's weights.

        Raises a `popart_exception`, and changes nothing, if an array fits no weight.
        """
        self._check_known(arrays)
        taken = {name: as_in_model(name, array, self._host[name]) for name, array in arrays.items()}
        self._host.update({name: np.array(array) for name, array in taken.items()})

    def to_device(self) -> None:
        """Gives the device the host's weights; raises a `popart_exception` if it was detached."""
        with _on_attached_device():
            for (name, order), variable in self._variables.items():
                variable.assign(_in_order(self._host[name], order))
        self.are_on_device = True

    def from_device(self) -> None:
        """Fetches the device's weights, and leaves the host's as they are."""
        self._fetched = self.current()

    def keep(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Makes fetched weights the host's, which `to_device` and `read` use from then on.

        Args:
            arrays: All arrays that `current` returned.
        """
        self._host, self._fetched = dict(arrays), dict(arrays)

    def read(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Fills arrays with what was fetched last.

        Raises a `popart_exception`, and writes nothing, if nothing was fetched or an array fits
        no weight.
        """
        if not self._fetched:
            raise popart_exception(
                "Must call weightsToHost before readWeights: nothing was copied from the device."
            )
        self._check_known(arrays)
        for name, array in arrays.items():
            as_in_model(name, array, self._host[name])
        for name, array in arrays.items():
            array[...] = self._fetched[name].reshape(array.shape)

    def current(self) -> dict[str, np.ndarray]:
        """Returns the host's weights, with what steps have changed on the device if it has them.

        Raises a `popart_exception` if the device was detached.
        """
        found = dict(self._host)
        if self.are_on_device:
            with _on_attached_device():
                for (name, order), variable in self._variables.items():
                    if name in self._owners:
                        found[name] = _in_order(variable.numpy(), order, back=True)
        return found

    def _check_known(self, arrays: Mapping[str, np.ndarray]) -> None:
        unknown = [name for name in arrays if name not in self._host]
        if unknown:
            raise popart_exception(
                f"There is no weight {unknown[0]!r} in the model. There are: "
                f"{', '.join(self._host) or 'none'}."
            )

    def _reads(self, name: str) -> Callable[[Order], tf.Tensor]:
        return lambda order: self._variable(name, order).read_value()

    def _read_once(self, name: str) -> Callable[[Order], tf.Tensor]:
        """Returns a function that reads a trained weight, always from one variable.

        That has the order of axes that the first reader wants; others get a transposed tensor.
        """
        # Gradients are taken with respect to one tensor in the step's own graph, also where a
        # node within a loop or a branch reads the weight.
        graph = tf.compat.v1.get_default_graph()
        made: dict[Order, tf.Tensor] = {}

        def read(order: Order) -> tf.Tensor:
            own = self._orders.setdefault(name, order)
            with graph.as_default():
                if own not in made:
                    made[own] = self._variable(name, own).read_value()
                if order not in made:
                    made[order] = LaidOutTensor(made[own], order=own).in_order(order)
            return made[order]

        return read

    def _variable(self, name: str, order: Order) -> tf.Variable:
        # A convolution wants its kernel in another order than the model has. Each order that
        # somebody reads has a variable, as transposing in each step takes long.
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
    """The state of a session's random operations: a seed, and how many steps there were.

    Without random operations, executions are counted, of which each rounds at random anew.

    Args:
        is_shared: Whether users may read and write the state.
        is_used: Whether the model has random operations, or rounds at random.
    """

    def __init__(self, *, is_shared: bool, is_used: bool = True):
        self._is_shared = is_shared
        self._is_used = is_used
        self._device = ""
        self._place: tuple[str, int] | None = None
        self._state: tf.Variable | None = None
        # Until the device has a variable, and whenever it loses it, this is the state.
        self._seed = self._count = 0

    def place(self, device: str, attachment: int) -> None:
        """Names the TensorFlow device of the state, before anything is traced.

        Args:
            attachment: How often the device was attached. What it held is gone after each time.
        """
        if (device, attachment) != self._place:
            self._place, self._device = (device, attachment), device
            self._state = None

    def set_seed(self, seed: int) -> None:
        """Begins anew with a seed, of which the lowest 31 bits count.

        It logs that this changes nothing if the model has no random operation.
        """
        number = integer_in(seed)
        if number is None:
            raise TypeError(f"A seed is an integer. Received: seedValue={seed!r}")
        if not self._is_used:
            getLogger("session").warn(
                f"Trying to set the random seed to {seed}, but the model has no random operation "
                "that would draw from it. This changes nothing."
            )
        self._seed, self._count = number & 0x7FFFFFFF, 0
        if self._state is not None:
            self._state.assign([self._seed, 0])

    def state(self) -> list[int]:
        """Returns the seed and the number of steps; they must be shared."""
        self._check_shared("getRNGState")
        return self._now()

    def set_state(self, state: Sequence[int]) -> None:
        """Goes on from where another session of the same program was; the state must be shared."""
        self._check_shared("setRNGState")
        if len(state) != 2:
            raise popart_exception(
                f"A state of random operations has 2 numbers. Received: {len(state)}"
            )
        # The device counts with int32.
        numbers = [integer_in(each) for each in state]
        if any(number is None or not 0 <= number < 2**31 for number in numbers):
            raise popart_exception(
                "A state of random operations is what getRNGState returned: integers from 0 to "
                f"{2**31 - 1}. Received: {list(state)!r}"
            )
        self._seed, self._count = (int(number) for number in state)
        if self._state is not None:
            self._state.assign([self._seed, self._count])

    def rounding_seed(self) -> int:
        """Returns the seed of what the next execution rounds at random, which follows from both."""
        seed, count = self._now()
        return seed | count << 31

    def note_execution(self) -> None:
        """Counts an execution, unless the device counts its steps."""
        if self._is_used and self._state is None:
            self._count += 1

    def _now(self) -> list[int]:
        return [self._seed, self._count] if self._state is None else self._state.numpy().tolist()

    def _check_shared(self, method: str) -> None:
        if not self._is_shared:
            raise popart_exception(
                f"Trying to use {method}, but SessionOptions.enableLoadAndOffloadRNGState is not "
                "set. Set it to True."
            )

    def of_step(self) -> tf.Tensor:
        """Returns the seed of the step that is being traced, and counts the step: `(2,)` int32."""
        if self._state is None:
            with tf.init_scope(), tf.device(self._device):
                self._state = tf.Variable(
                    [self._seed, self._count],
                    dtype=tf.int32,
                    trainable=False,
                    experimental_enable_variable_lifting=False,
                )
        before = self._state.read_value()
        # The step uses the state from before it was counted.
        with tf.control_dependencies([before]):
            self._state.assign_add([0, 1])
        return before


@contextlib.contextmanager
def _on_attached_device() -> Iterator[None]:
    try:
        yield
    except tf.errors.FailedPreconditionError as error:
        raise popart_exception(
            "The device of the session was detached, and what it held is gone. Fetch weights "
            "before, with weightsToHost or modelToHost. To go on, call its `attach()`, and "
            "prepareDevice and weightsFromHost of the session."
        ) from error


def _in_order(array: np.ndarray, order: Order, *, back: bool = False) -> np.ndarray:
    """Returns an array of the model in an order of axes; `back` reverses that."""
    permutation = order.permutation(array.ndim)
    if back:
        permutation = [permutation.index(axis) for axis in range(array.ndim)]
    # Not `ascontiguousarray`, which makes a vector of a scalar.
    return array.transpose(permutation).copy(order="C")


def as_in_model(name: str, array: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Returns an array in a weight's shape, which it may also have flattened.

    Raises a `popart_exception` if the array is of another type, or neither flat nor of the shape.
    """
    if array.ndim == 1 and array.size == weight.size:
        array = array.reshape(weight.shape)
    check_like(name, array, weight)
    return array


def check_like(name: str, array: np.ndarray, weight: np.ndarray) -> None:
    """Raises a `popart_exception` if an array has another shape or type than a weight."""
    if array.shape != weight.shape or array.dtype != weight.dtype:
        raise popart_exception(
            f"The weight {name} is {weight.dtype.name} of the shape {list(weight.shape)}. "
            f"Received: {array.dtype.name} of the shape {list(array.shape)}"
        )

"""The tensors of an ONNX graph while it is traced, each in the orders of axes that are needed.

ONNX has the channels of images and kernels before their spatial axes. The host computes
convolutions fastest with channels last, and transposing around each costs a quarter of a step, so
a value stays as it was made until an operation needs it otherwise.
"""

import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


class Order(enum.Enum):
    """Of the axes of a tensor.

    - `ONNX`: as in the model.
    - `IMAGES`: of images `(batch, channels, ...)`, `(batch, ..., channels)`.
    - `KERNEL`: of weights `(out, in, ...)`, `(..., in, out)`.
    """

    ONNX = "onnx"
    IMAGES = "images"
    KERNEL = "kernel"

    def permutation(self, rank: int) -> list[int]:
        """The axes of the model, in this order.

        Args:
            rank: Of the tensor.
        """
        if self is Order.IMAGES:
            return [0, *range(2, rank), 1]
        if self is Order.KERNEL:
            return [*range(2, rank), 1, 0]
        return list(range(rank))


class Value:
    """A tensor of a graph.

    Args:
        tensor: It; `None` if it is given otherwise.
        order: Of the axes of `tensor`.
        known: Its value, if that is known while tracing.
        dtype: Of tensors of what is known, if not that of the array, which keeps what they lose;
            of what is read.
        read: Gives it in an order; for weights, which may be kept in several.
        shape: In the model, of what is read, with `dtype`: it is not read before it is needed.
        is_weight: Whether it may change from run to run: nothing is computed from it while tracing.
    """

    def __init__(
        self,
        tensor: Any = None,
        *,
        order: Order = Order.ONNX,
        known: np.ndarray | None = None,
        dtype: tf.DType | None = None,
        read: Callable[[Order], tf.Tensor] | None = None,
        shape: tuple[int, ...] | None = None,
        is_weight: bool = False,
    ):
        self.order = order
        self.known = known
        self.is_weight = is_weight
        self._read = read
        self._made: dict[Order, tf.Tensor] = {} if tensor is None else {order: tensor}
        if known is not None:
            self.shape, self.dtype = tuple(known.shape), dtype or tf.as_dtype(known.dtype)
        elif shape is not None and dtype is not None:
            self.shape, self.dtype = shape, dtype
        else:
            made = tensor if read is None else read(order)
            self._made[order] = made
            self.shape, self.dtype = _shape_in_model(made, order), made.dtype

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether it is known while tracing, and for all runs."""
        return self.known is not None and not self.is_weight

    def scalar(self) -> Any:
        """The only element of what is known."""
        assert self.known is not None
        return self.known.item()

    @property
    def tensor(self) -> tf.Tensor:
        """It as in the model."""
        return self.in_order(Order.ONNX)

    def in_order(self, order: Order) -> tf.Tensor:
        """It with its axes in an order.

        Args:
            order: The order.
        """
        found = self._made.get(order)
        if found is not None and self._is_usable(found):
            return found
        # What is made in a branch or the body of a loop is of no use outside, where it is made
        # again.
        self._made[order] = self._in_order(order)
        return self._made[order]

    def broadcast(self, rank: int, order: Order) -> tf.Tensor:
        """It with as many axes, the first of size 1, in an order of all of them.

        Args:
            rank: At least its own.
            order: Of the axes.
        """
        if rank == self.rank:
            return self.in_order(order)
        shape = (1,) * (rank - self.rank) + self.shape
        if self.known is not None:
            return Value(known=self.known.reshape(shape), dtype=self.dtype).in_order(order)
        if not self.shape or order is Order.ONNX:
            return self.tensor
        return tf.transpose(tf.reshape(self.tensor, shape), order.permutation(rank))

    def _in_order(self, order: Order) -> tf.Tensor:
        permutation = order.permutation(self.rank)
        if self._read is not None:
            return self._read(order)
        if self.known is not None:
            return tf.constant(_as_dtype(self.known, self.dtype).transpose(permutation))
        given = self.order.permutation(self.rank)
        moved = [given.index(axis) for axis in permutation]
        return _transposed(self._made[self.order], moved)

    def _is_usable(self, made: Any) -> bool:
        # A graph takes an eager tensor as an input, and so would not know a constant.
        if self.known is not None and _is_eager(made) and not tf.executing_eagerly():
            return False
        return _is_usable(made)


def results_of(returned: Any, order: Order = Order.ONNX, num_images: int = 0) -> list[Any]:
    """The values of what an operation returned.

    Args:
        returned: A tensor or an array, or a tuple of such. A list is one result: a sequence.
        order: Of the axes of results.
        num_images: How many of the first results have channels last, whatever the order of others.
    """
    several = returned if isinstance(returned, tuple) else (returned,)
    return [
        value_of(one, Order.IMAGES if position < num_images else order)
        for position, one in enumerate(several)
    ]


def value_of(result: Any, order: Order = Order.ONNX) -> Any:
    """A result as a value; a sequence, which is a list, as a list of values.

    Args:
        result: A tensor, or an array if it is known while tracing.
        order: Of its axes.
    """
    if isinstance(result, Value):
        return result
    if isinstance(result, list):
        return [value_of(one) for one in result]
    if isinstance(result, np.ndarray | np.generic):
        return Value(known=np.asarray(result))
    return Value(result, order=order)


def _shape_in_model(tensor: Any, order: Order) -> tuple[int | None, ...]:
    shape = tensor.shape.as_list()
    permutation = order.permutation(len(shape))
    return tuple(shape[permutation.index(axis)] for axis in range(len(shape)))


def _as_dtype(array: np.ndarray, dtype: tf.DType) -> np.ndarray:
    """An array in a type that may be narrower: as a cast of C does it."""
    with np.errstate(over="ignore"):
        return array.astype(dtype.as_numpy_dtype, copy=False)


def _transposed(tensor: Any, permutation: list[int]) -> tf.Tensor:
    """A tensor with its axes moved; where only axes of size 1 move, no element does."""
    shape = tensor.shape.as_list()
    wide = [axis for axis in permutation if shape[axis] != 1]
    if wide == sorted(wide) and shape.count(None) <= 1 and 0 not in shape:
        return tf.reshape(tensor, [-1 if shape[a] is None else shape[a] for a in permutation])
    return tf.transpose(tensor, permutation)


def _is_eager(tensor: Any) -> bool:
    return not tf.is_symbolic_tensor(tensor)


def _is_usable(tensor: Any) -> bool:
    """Whether a tensor can be used where tracing is now: in its graph, or in one within."""
    if _is_eager(tensor):
        return True
    graph: Any = tf.compat.v1.get_default_graph()
    while graph is not None:
        if graph is tensor.graph:
            return True
        graph = getattr(graph, "outer_graph", None)
    return False

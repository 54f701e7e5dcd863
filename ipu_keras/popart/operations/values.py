"""Holds the tensors of an ONNX graph while it is traced, each in the orders of axes asked for.

ONNX puts the channels of images and kernels before their spatial axes. The host computes
convolutions fastest with channels last, and transposing around each of them costs a quarter of a
step, so a value keeps the order in which it was made until an operation needs another one.
"""

import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


class Order(enum.Enum):
    """An order of the axes of a tensor.

    - `ONNX`: as in the model.
    - `IMAGES`: `(batch, ..., channels)` where the model has `(batch, channels, ...)`.
    - `KERNEL`: `(..., in, out)` where the model has `(out, in, ...)`.
    """

    ONNX = "onnx"
    IMAGES = "images"
    KERNEL = "kernel"

    def permutation(self, rank: int) -> list[int]:
        """Lists the axes of the model in this order, for a tensor of `rank` axes."""
        if self is Order.IMAGES:
            return [0, *range(2, rank), 1]
        if self is Order.KERNEL:
            return [*range(2, rank), 1, 0]
        return list(range(rank))


class LaidOutTensor:
    """A tensor of a graph, given as a tensor, as a known array, or by a function that reads it.

    Args:
        tensor: The tensor, in the order `order`; `None` if `known` or `read` gives the value.
        known: The value, if it is known while tracing.
        dtype: The type that tensors of `known` get, which may be narrower than the array's; with
            `shape`, the type of what `read` returns.
        read: Returns a weight in an order of axes; a weight may be stored in several.
        shape: The shape in the model of what `read` returns; without it, `read` is called at once.
        is_weight: Whether the value may change from run to run, so that nothing is computed from
            it while tracing.
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
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether the value is known while tracing, and the same in all runs."""
        return self.known is not None and not self.is_weight

    def scalar(self) -> Any:
        """Returns the only element of a known value."""
        assert self.known is not None
        return self.known.item()

    @property
    def tensor(self) -> tf.Tensor:
        """The tensor with its axes as in the model."""
        return self.in_order(Order.ONNX)

    def in_order(self, order: Order) -> tf.Tensor:
        """Returns the tensor with its axes in `order`, transposing it at most once a graph."""
        found = self._made.get(order)
        if found is not None and self._is_usable(found):
            return found
        # A tensor that was made in a branch or in the body of a loop belongs to that graph and
        # cannot be used outside of it, so it is made again there.
        self._made[order] = self._in_order(order)
        return self._made[order]

    def broadcast(self, rank: int, order: Order) -> tf.Tensor:
        """Returns the tensor in `order`, with axes of size 1 before its own up to `rank` axes."""
        # ONNX broadcasts from the last axis of the model on, which is not the last of images with
        # channels last: tensors of lower rank need all axes before they are transposed.
        if rank == self.rank:
            return self.in_order(order)
        shape = (1,) * (rank - self.rank) + self.shape
        if self.known is not None:
            return LaidOutTensor(known=self.known.reshape(shape), dtype=self.dtype).in_order(order)
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
    """Returns what an operation `returned` as values; the first `num_images` have channels last.

    A tuple has several results; a list is one result, a sequence.
    """
    several = returned if isinstance(returned, tuple) else (returned,)
    return [
        value_of(one, Order.IMAGES if position < num_images else order)
        for position, one in enumerate(several)
    ]


def value_of(result: Any, order: Order = Order.ONNX) -> Any:
    """Returns a tensor or a known array as a value, and a list (a sequence) as a list of values."""
    if isinstance(result, LaidOutTensor):
        return result
    if isinstance(result, list):
        return [value_of(one) for one in result]
    if isinstance(result, np.ndarray | np.generic):
        return LaidOutTensor(known=np.asarray(result))
    return LaidOutTensor(result, order=order)


def _shape_in_model(tensor: Any, order: Order) -> tuple[int | None, ...]:
    shape = tensor.shape.as_list()
    permutation = order.permutation(len(shape))
    return tuple(shape[permutation.index(axis)] for axis in range(len(shape)))


def _as_dtype(array: np.ndarray, dtype: tf.DType) -> np.ndarray:
    """Casts an array as C does, to a type that may be narrower."""
    with np.errstate(over="ignore"):
        return array.astype(dtype.as_numpy_dtype, copy=False)


def _transposed(tensor: Any, permutation: list[int]) -> tf.Tensor:
    """Moves axes of a tensor; reshapes it instead where only axes of size 1 change places."""
    shape = tensor.shape.as_list()
    wide = [axis for axis in permutation if shape[axis] != 1]
    if wide == sorted(wide) and shape.count(None) <= 1 and 0 not in shape:
        return tf.reshape(tensor, [-1 if shape[a] is None else shape[a] for a in permutation])
    return tf.transpose(tensor, permutation)


def _is_eager(tensor: Any) -> bool:
    return not tf.is_symbolic_tensor(tensor)


def _is_usable(tensor: Any) -> bool:
    """Whether a tensor can be used by the graph being traced: in its own graph or one inside it."""
    if _is_eager(tensor):
        return True
    graph: Any = tf.compat.v1.get_default_graph()
    while graph is not None:
        if graph is tensor.graph:
            return True
        graph = getattr(graph, "outer_graph", None)
    return False

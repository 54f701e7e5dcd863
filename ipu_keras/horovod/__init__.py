"""Horovod's interface to several processes, which MPI joins.

`mpirun -n 2 python train.py`, or `ipu-keras launch -n 2 train.py`, starts them. Without a
launcher, a process is alone.
"""

import importlib
from collections.abc import Iterable
from enum import Enum
from typing import Any

import tensorflow as tf

from ipu_keras.machine.system import SYSTEM
from ipu_keras.machine.world import ALONE, World
from ipu_keras.processes import process_collectives
from ipu_keras.processes.joining import joined


class ReduceOp(Enum):
    """How `allreduce` combines the tensors of all processes."""

    AVERAGE = "average"
    SUM = "sum"
    ADASUM = "adasum"


Average, Sum, Adasum = ReduceOp.AVERAGE, ReduceOp.SUM, ReduceOp.ADASUM


def init() -> None:
    """Joins the processes that the launcher has started; may be called again.

    Raises:
        ImportError: mpi4py, or a library of MPI, is not installed.

    Example:

    >>> init()
    >>> size(), rank()
    (1, 0)
    """
    joined()


def shutdown() -> None:
    """Leaves the other processes, as far as this interface goes; `init` joins them again."""
    SYSTEM.join(ALONE, None)


def is_initialized() -> bool:
    """Returns whether `init` has joined the processes."""
    return SYSTEM.communicator is not None


def size() -> int:
    """Returns the number of processes.

    Raises:
        ValueError: `init` has not been called.
    """
    return initialized_world().size


def rank() -> int:
    """Returns the number of this process, from 0.

    Raises:
        ValueError: `init` has not been called.
    """
    return initialized_world().rank


def local_size() -> int:
    """Returns the number of processes on this machine.

    Raises:
        ValueError: `init` has not been called.
    """
    return initialized_world().local_size


def local_rank() -> int:
    """Returns the number of this process among those of this machine, from 0.

    Raises:
        ValueError: `init` has not been called.
    """
    return initialized_world().local_rank


def is_homogeneous() -> bool:
    """Returns whether all machines have as many processes, as one machine has.

    Raises:
        ValueError: `init` has not been called.
    """
    world = initialized_world()
    return world.size % world.local_size == 0


def mpi_threads_supported() -> bool:
    """Returns whether several threads may call MPI, which programs need and `init` asks for.

    Raises:
        ValueError: `init` has not been called.
    """
    initialized_world()
    return True


def mpi_built() -> bool:
    """Returns whether processes are joined by MPI, which is so."""
    return True


def mpi_enabled() -> bool:
    """Returns whether processes are joined by MPI, which is so."""
    return True


def gloo_built() -> bool:
    """Returns whether processes may be joined by Gloo, which is not so."""
    return False


def gloo_enabled() -> bool:
    """Returns whether processes are joined by Gloo, which is not so."""
    return False


def nccl_built() -> bool:
    """Returns whether NCCL adds up tensors, which is not so."""
    return False


def allreduce(
    tensor: tf.Tensor | tf.Variable | tf.IndexedSlices, op: ReduceOp | None = None
) -> Any:
    """Adds up a tensor over all processes, or averages it.

    Of `tf.IndexedSlices`, values and indices are gathered, which represents the sum of the tensors.

    Args:
        tensor: Numbers of the same shape in all processes.
        op: `Sum` or `Average`; `None` averages.

    Returns:
        A tensor of the same shape and type, equal in all processes.

    Raises:
        ValueError: `init` has not been called, or `op` is none of these.
        NotImplementedError: `op` is `Adasum`, which IPU software lacks too.
        TypeError: Processes cannot add up the type.

    Example:

    >>> import tensorflow as tf
    >>> init()
    >>> allreduce(tf.constant([1.0, 2.0]), op=Sum).numpy()
    array([1., 2.], dtype=float32)
    """
    world = initialized_world()
    op = Average if op is None else op
    if op is Adasum:
        raise NotImplementedError("The Adasum reduction is not implemented")
    if op not in (Average, Sum):
        raise ValueError(f"`op` must be Average or Sum. Received: op={op!r}")
    parts = world.size if op is Average else 1
    if isinstance(tensor, tf.IndexedSlices):
        values = allgather(tensor.values)
        divided = values / tf.cast(parts, values.dtype) if parts > 1 else values
        return tf.IndexedSlices(divided, allgather(tensor.indices), tensor.dense_shape)
    total = _summed(tf.convert_to_tensor(tensor))
    if parts == 1:
        return total
    count = tf.cast(parts, total.dtype)
    return total // count if total.dtype.is_integer else total / count


@tf.custom_gradient
def _summed(tensor: tf.Tensor) -> Any:
    (total,) = process_collectives.all_reduce([tensor])
    return total, lambda upstream: process_collectives.all_reduce([upstream])[0]


def allgather(tensor: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """Puts the tensors of all processes one behind the other, along the first axis.

    Args:
        tensor: This process's part. Outside of functions, the first axes may differ.
        name: A name for the operation.

    Returns:
        The tensors of all processes, by rank.

    Raises:
        ValueError: `init` has not been called.
        TypeError: Within a function, processes cannot add up the type.
    """
    initialized_world()
    return tf.identity(process_collectives.all_gather(tensor), name)


def broadcast(tensor: tf.Tensor, root_rank: int, name: str | None = None) -> tf.Tensor:
    """Gives all processes the tensor of one of them.

    Args:
        tensor: Has the same shape and type in all processes.
        root_rank: The rank of the process whose tensor it is.
        name: A name for the operation.

    Returns:
        The tensor of that process.

    Raises:
        ValueError: `init` has not been called, or there is no such rank.
        TypeError: Within a function, processes cannot add up the type.
    """
    world = initialized_world()
    if not 0 <= root_rank < world.size:
        raise ValueError(
            f"`root_rank` must be the rank of one of the {world.size} processes. "
            f"Received: root_rank={root_rank}"
        )
    return tf.identity(process_collectives.broadcast(tensor, root_rank), name)


def broadcast_variables(variables: Iterable[Any], root_rank: int) -> None:
    """Gives the variables of all processes the values that those of one process have.

    Args:
        variables: TensorFlow's or Keras's, in the same order in all processes.
        root_rank: The rank of the process whose values they get.

    Raises:
        ValueError: `init` has not been called, or there is no such rank.
    """
    for variable in variables:
        variable.assign(broadcast(tf.convert_to_tensor(variable), root_rank))


def broadcast_weights(model: Any, root_rank: int) -> None:
    """Gives a model the weights that it has in one process.

    Args:
        model: A Keras model, built in all processes.
        root_rank: The rank of the process whose weights it gets.

    Raises:
        ValueError: `init` has not been called, or there is no such rank.
    """
    broadcast_variables(model.weights, root_rank)


def initialized_world() -> World:
    """Returns the processes that have joined.

    Raises:
        ValueError: `init` has not been called.
    """
    if SYSTEM.communicator is None:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return SYSTEM.world


# Its modules of strategies, which import this one.
_STRATEGIES = ("ipu_horovod_strategy", "ipu_multi_replica_strategy", "popdist_strategy")


def __getattr__(name: str) -> Any:
    if name not in _STRATEGIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")

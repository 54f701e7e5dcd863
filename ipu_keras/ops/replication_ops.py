"""The operation by which a replica finds out its number."""

import tensorflow as tf

from ipu_keras.tracing.replication import replica_index


def replication_index(name: str | None = None) -> tf.Tensor:
    """Tells which of the replicas runs the operation.

    Args:
        name: Name of the operation.

    Returns:
        A scalar of type int32, from 0 on.

    Example:

    >>> int(replication_index())  # without replicas
    0
    """
    return replica_index(name)

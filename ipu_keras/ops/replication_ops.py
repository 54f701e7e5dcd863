"""What a replica knows about itself."""

import tensorflow as tf

from ipu_keras.tracing.replication import replica_index


def replication_index(name: str | None = None) -> tf.Tensor:
    """Which of the replicas runs the operation.

    Args:
        name: Of the operation.

    Returns:
        A scalar of type int32, from 0 on.

    Example:

    >>> int(replication_index())  # without replicas
    0
    """
    return replica_index(name)

"""Whether replicas that train a model exchange what they have learnt."""

from typing import Any

import tensorflow as tf

from ipu_keras.optimizers.cross_replica_optimizer import without_exchange
from ipu_keras.settings.arguments import noted
from ipu_keras.tracing.replication import collective_of


def check_exchange(num_replicas: int, graph: tf.Graph, optimizer: Any = None) -> None:
    """Raises a `ValueError` if replicas would train apart.

    Args:
        graph: The graph in which the model was traced.
        optimizer: An optimizer of a pipeline, which adds gradients outside of that graph.
    """
    if num_replicas == 1 or without_exchange(optimizer)[1]:
        return
    collectives = map(collective_of, graph.get_operations())
    if any(each is not None and each.kind == "all-reduce" for each in collectives):
        return
    raise noted(
        ValueError(
            "This is not a valid replicated training graph because no CrossReplicaSum operations "
            "were found. Did you remember to use the "
            "`tensorflow.python.ipu.optimizers.CrossReplicaOptimizer`?"
        ),
        f"Without it each of the {num_replicas} replicas trains weights of its own, of which the "
        "host reads those of the first.",
    )

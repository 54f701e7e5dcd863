"""Notes what all replicas of a function do together while one of them is traced.

What is known only when the trace is complete, such as which variables each replica has for
itself, decides what they do.
"""

from collections.abc import Callable

import tensorflow as tf

from ipu_keras.functions.place import outermost_graph
from ipu_keras.host.joint_operations import Together
from ipu_keras.host.replica_variables import ReplicaVariables

_COLLECTION = "ipu_done_together"


def note_together(make: Callable[[ReplicaVariables], Together]) -> str:
    """Notes what replicas of the graph being traced do together, and returns its label.

    When the trace is complete, `make` takes the replicas' variables, and returns what does it
    for all (`ipu_keras.tracing.together`).
    """
    noted = outermost_graph().get_collection_ref(_COLLECTION)
    noted.append(make)
    return str(len(noted) - 1)


def done_together(graph: tf.Graph, variables: ReplicaVariables) -> dict[str, Together]:
    """Returns what the replicas of a traced function do together, by label."""
    return {str(k): make(variables) for k, make in enumerate(graph.get_collection(_COLLECTION))}

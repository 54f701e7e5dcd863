"""Tells whether a model draws random numbers."""

from ipu_keras.popart.model.graph import OnnxModel
from ipu_keras.popart.operations.table import operation_of


def draws(model: OnnxModel) -> bool:
    """Whether any operation of a model, or of a graph within it, may draw random numbers."""
    return any(
        operation_of(node.domain, node.kind, model.opsets.get(node.domain, 1)).is_random
        for node in model.graph.all_nodes()
    )

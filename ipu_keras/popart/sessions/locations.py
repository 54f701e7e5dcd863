"""Reads from options of a session which tensors of a pipeline are in remote memory or sharded."""

from typing import Any

import numpy as np

from ipu_keras.popart.options.enumerations import ReplicatedTensorSharding, TensorStorage
from ipu_keras.popart.options.settings import TensorLocationSettings
from ipu_keras.settings.option_warnings import OPTION_WARNINGS


def pipeline_choices(options: Any) -> dict[str, Any]:
    """Returns the arguments of a `Pipeline` that say where tensors are."""
    weights = options.weightTensorLocationSettings
    states = options.optimizerStateTensorLocationSettings
    return {
        "offload_activations": _is_remote(options.activationTensorLocationSettings),
        "offload_gradient_accumulation_buffers": _is_remote(
            options.accumulatorTensorLocationSettings
        ),
        "offload_weight_update_variables": _is_remote(states),
        "replicated_optimizer_state_sharding": _is_shared(states),
        "offload_weights": _is_remote(weights),
        "replicated_weight_sharding": _is_shared(weights),
    }


def least_bytes_elsewhere(options: Any) -> int | None:
    """Returns the size in bytes from which on tensors may be elsewhere; `None` if none shall be.

    A program has one such size: of several options, the smallest counts.
    """
    kinds = (
        options.accumulatorTensorLocationSettings,
        options.optimizerStateTensorLocationSettings,
        options.weightTensorLocationSettings,
    )
    sizes = [
        each.minElementsForReplicatedTensorSharding
        if _is_shared(each)
        else each.minElementsForOffChip
        for each in kinds
        if _is_shared(each) or _is_remote(each)
    ]
    # PopART's limit is in elements, the compiler's in bytes: elements are taken for float32.
    return min(sizes) * np.dtype(np.float32).itemsize if sizes else None


def warn_of_locations(options: Any, num_replicas: int, *, trains: bool) -> None:
    in_pipeline, default = options.enablePipelining, TensorLocationSettings()
    weights = options.weightTensorLocationSettings
    are_shared = in_pipeline and num_replicas > 1 and _is_shared(weights)
    acting = {
        "weightTensorLocationSettings": (weights, are_shared),
        "activationTensorLocationSettings": (
            options.activationTensorLocationSettings,
            in_pipeline and trains,
        ),
    }
    if trains:
        acting["optimizerStateTensorLocationSettings"] = (
            options.optimizerStateTensorLocationSettings,
            in_pipeline,
        )
        acting["accumulatorTensorLocationSettings"] = (
            options.accumulatorTensorLocationSettings,
            in_pipeline,
        )
    idle = [name for name, (given, acts) in acting.items() if given != default and not acts]
    OPTION_WARNINGS.warn(
        "SessionOptions",
        idle,
        lambda names: (
            f"SessionOptions sets {names} without an effect. Tensors are kept elsewhere "
            "in models of pipelines: activations, accumulators and the optimizer's state where "
            "there are gradients, and weights where several replicas share them, by "
            "ReplicatedTensorSharding.On. Received: "
            f"enablePipelining={in_pipeline}, {num_replicas} replica(s)"
        ),
        stacklevel=2,
    )


def _is_remote(settings: TensorLocationSettings) -> bool:
    return settings.location.storage == TensorStorage.OffChip


def _is_shared(settings: TensorLocationSettings) -> bool:
    return settings.location.replicatedTensorSharding == ReplicatedTensorSharding.On

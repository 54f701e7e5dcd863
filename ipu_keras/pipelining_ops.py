"""Operations of pipelines, and the choices about how these run."""

from typing import Any

import tensorflow as tf

from ipu_keras._missing_names import missing_attribute
from ipu_keras.settings.argument_errors import converted
from ipu_keras.settings.pipeline_choices import PipelineSchedule as PipelineSchedule
from ipu_keras.settings.pipeline_choices import PipelineStageOptions as PipelineStageOptions
from ipu_keras.settings.pipeline_choices import RecomputationMode as RecomputationMode
from ipu_keras.tracing.poplar_operation import RECOMPUTATION_CHECKPOINT, poplar_operation

# So that importing a documented name from here that is missing says so, as reading it does.
__path__: list[str] = []


def __getattr__(name: str) -> Any:
    raise missing_attribute(__name__, name)


def recomputation_checkpoint(tensors: Any, name: str | None = None) -> Any:
    """Marks activations that stay in memory where others are computed again.

    A stage that recomputes starts from what enters it, and at the last moment has all its
    activations at once. With checkpoints it starts from the one before, so no more than the
    activations between two of them are there together. Values and gradients stay as they are;
    only the cost model sees the difference.

    It has an effect if `IPUConfig.allow_recompute` is set, and none with
    `RecomputationMode.RecomputeThenBackpropagate`, which needs all activations at once anyhow.

    Args:
        tensors: A tensor or a structure of tensors.
        name: Of the operation.

    Returns:
        The same in the same structure.

    Raises:
        TypeError: There is what no tensor can be made of.
        ValueError: As of `TypeError`; TensorFlow has either of them.

    Example:

    >>> recomputation_checkpoint({"features": tf.constant([1.0, 2.0])})["features"].numpy()
    array([1., 2.], dtype=float32)
    """
    with poplar_operation(RECOMPUTATION_CHECKPOINT):
        return tf.nest.map_structure(
            lambda tensor: _checkpoint(tensor, name), tensors, expand_composites=True
        )


def _checkpoint(tensor: Any, name: str | None) -> tf.Tensor:
    # XLA forgets an identity; a new shape that is the old one it keeps, with the name.
    tensor = converted("tensors", tf.convert_to_tensor, tensor)
    return tf.reshape(tensor, tf.shape(tensor), name=name)

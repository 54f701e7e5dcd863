"""The class that documents call `tensorflow.python.ipu.keras.PipelineSequential`."""

from collections.abc import Sequence
from typing import Any

import keras

from ipu_keras.keras.extensions.sequential_extension import SequentialExtension
from ipu_keras.keras.legacy.late_weights import LateWeights
from ipu_keras.keras.legacy.legacy_pipeline import (
    LegacyPipeline,
    check_num_stages,
    pipeline_options,
)
from ipu_keras.settings.arguments import noted


class PipelineSequential(LegacyPipeline, LateWeights, keras.Sequential, SequentialExtension):
    """A stack of layers in place of `keras.Sequential`, in pipeline stages on several IPUs.

    It runs as `PipelineModel` does. Its trainable variables can be had after it has run.

    Args:
        stages: For each stage a list of its layers.
        gradient_accumulation_count: Batches of a step for each replica, whose gradients are
            added. It has to be given.
        device_mapping: The IPU of each stage. `None` for one after the other.
        batch_serialization_iterations: Parts of a batch that a stage computes one by one; only
            1 is implemented.
        name: Name of the model.
        **pipeline_kwargs: Further arguments of `pipelining_ops.pipeline`, as `PipelineModel`
            lists them.

    Raises:
        ValueError: `stages` is not a list of lists of layers, or an argument is not valid.
        TypeError: An argument has the wrong type, or `pipeline` does not have it.
        NotImplementedError: Hardware or this package cannot do what is asked.

    Example:

    >>> import keras, numpy as np
    >>> from ipu_keras.config import IPUConfig
    >>> from ipu_keras.ipu_strategy import IPUStrategy
    >>> config = IPUConfig()
    >>> config.auto_select_ipus = 2
    >>> config.configure_ipu_system()
    >>> with IPUStrategy().scope():
    ...     stages = [[keras.layers.Dense(4, "relu")], [keras.layers.Dense(1)]]
    ...     model = PipelineSequential(stages, gradient_accumulation_count=4)
    ...     model.compile("sgd", "mse")
    ...     data = np.zeros((16, 4), np.float32), np.zeros((16, 1), np.float32)
    ...     history = model.fit(*data, batch_size=2, verbose=0)
    >>> history.params["steps"]
    2
    """

    def __init__(
        self,
        stages: list[list[Any]],
        *,
        gradient_accumulation_count: int | None = None,
        device_mapping: Sequence[int] | None = None,
        batch_serialization_iterations: int = 1,
        name: str | None = None,
        **pipeline_kwargs: Any,
    ):
        _check_lists(stages)
        options = pipeline_options(
            gradient_accumulation_count,
            device_mapping,
            batch_serialization_iterations,
            pipeline_kwargs,
        )
        check_num_stages(len(stages), device_mapping)
        keras.Sequential.__init__(self, [layer for stage in stages for layer in stage], name=name)
        self._ipu.set(pipelining=options, stages=_stages_of_layers(stages))

    def add(self, layer, rebuild=True) -> None:
        """Refuses further layers, which would have no stage.

        Args:
            layer: A layer, as Keras takes it.
            rebuild: Whether to rebuild the model, as in Keras.

        Raises:
            NotImplementedError: The model has been made.
        """
        _refuse_change(self, "add")
        super().add(layer, rebuild=rebuild)

    def pop(self, rebuild=True):
        """Refuses to take a layer out of its stage.

        Args:
            rebuild: Whether to rebuild the model, as in Keras.

        Raises:
            NotImplementedError: Every call is refused.
        """
        _refuse_change(self, "pop")


def _refuse_change(model: PipelineSequential, method: str) -> None:
    # The constructor adds its layers by `add`, too, and sets the stages when it has done so.
    if model._ipu.options.stages is not None:
        raise NotImplementedError(
            f"PipelineSequential does not support `{method}`: the stages of its layers are "
            "those that it was made of. Make another one of other lists of layers."
        )


def _check_lists(stages: Any) -> None:
    if not isinstance(stages, list) or not stages:
        raise noted(
            ValueError(
                "An IPU pipeline must take a non-empty list of stages, where each stage is a "
                "list of Keras Layers."
            ),
            f"Received: stages={stages!r}",
        )
    for index, stage in enumerate(stages):
        if not isinstance(stage, list) or not all(map(_is_layer, stage)):
            raise noted(
                ValueError(
                    "An IPU pipeline may only contain lists of stages, where each stage is a "
                    "list of Keras Layers."
                ),
                f"Received: {stage!r} as stage {index}",
            )
        if not _without_inputs(stage):
            raise ValueError(
                "An IPU pipeline may only contain stages with at least one layer besides the "
                f"input. Received: {stage!r} as stage {index}"
            )


def _stages_of_layers(stages: list[list[Any]]) -> tuple[int, ...]:
    return tuple(index for index, stage in enumerate(stages) for _ in _without_inputs(stage))


def _is_layer(value: Any) -> bool:
    # What `keras.Input` returns stands for its layer in all Sequential models of Keras.
    return isinstance(value, keras.Layer | keras.KerasTensor)


def _without_inputs(stage: list[Any]) -> list[Any]:
    return [
        layer
        for layer in stage
        if not isinstance(layer, keras.layers.InputLayer | keras.KerasTensor)
    ]

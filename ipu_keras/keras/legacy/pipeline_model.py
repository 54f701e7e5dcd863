"""The class that documents call `tensorflow.python.ipu.keras.PipelineModel`."""

import functools
from collections.abc import Sequence
from typing import Any

from ipu_keras.internals.keras.models import Functional
from ipu_keras.keras.extensions.functional_extension import FunctionalExtension
from ipu_keras.keras.extensions.layer_calls import LayerCall
from ipu_keras.keras.extensions.model_stages import FunctionalStages
from ipu_keras.keras.extensions.pipeline_checks import check_completeness
from ipu_keras.keras.legacy.legacy_model import LegacyModel
from ipu_keras.keras.legacy.legacy_pipeline import (
    LegacyPipeline,
    PipelineOnIpu,
    check_num_stages,
    pipeline_options,
)
from ipu_keras.settings.arguments import noted


class PipelineModel(LegacyPipeline, Functional, FunctionalExtension):
    """A functional model in place of `keras.Model`, in pipeline stages on several IPUs.

    The stage of a layer is that of the `PipelineStage` in whose scope it is called. All
    layers have one; stages count from 0, without gaps.

    `fit`, `evaluate` and `predict` are called in the scope of an `IPUStrategy`, in which
    the model is made too, or to which it moves when it is first used. All steps of an epoch are
    one execution on the device. A step is one pass of `gradient_accumulation_count` batches of
    each replica through the pipeline, in training with one weight update: `steps_per_epoch`,
    the progress bar and callbacks count these. A device with IPUs for several pipelines has as
    many replicas, whose gradients are added; `steps_per_epoch` counts the steps of all. Samples
    of arrays that fill no batch are dropped, with a warning; `predict` takes no labels.

    Args:
        inputs: Inputs of a functional `keras.Model`.
        outputs: Outputs of a functional `keras.Model`.
        gradient_accumulation_count: Batches of a step for each replica, whose gradients are
            added. It has to be given.
        device_mapping: The IPU of each stage. `None` for one after the other.
        batch_serialization_iterations: Parts of a batch that a stage computes one by one; only
            1 is implemented.
        name: Name of the model.
        **pipeline_kwargs: Further arguments of `pipelining_ops.pipeline`:
            `gradient_accumulation_dtype`, `pipeline_schedule`, `recomputation_mode`,
            `forward_propagation_stages_poplar_options`,
            `backward_propagation_stages_poplar_options`, `weight_update_poplar_options`,
            `offload_weight_update_variables`, `replicated_optimizer_state_sharding`,
            `offload_activations`, `offload_gradient_accumulation_buffers`,
            `replicated_weight_sharding`, `offload_weights`, `accumulate_outfeed` and
            `accumulate_outfeed_dtype`.

    Raises:
        ValueError: Stages are missing or in a wrong order, or an argument is not valid.
        TypeError: An argument has the wrong type, or `pipeline` does not have it.
        NotImplementedError: Hardware or this package cannot do what is asked.

    Example:

    >>> import keras, numpy as np
    >>> from ipu_keras.config import IPUConfig
    >>> from ipu_keras.ipu_strategy import IPUStrategy
    >>> from ipu_keras.keras import PipelineStage
    >>> config = IPUConfig()
    >>> config.auto_select_ipus = 2
    >>> config.configure_ipu_system()
    >>> with IPUStrategy().scope():
    ...     inputs = keras.Input((4,))
    ...     with PipelineStage(0):
    ...         x = keras.layers.Dense(4, "relu")(inputs)
    ...     with PipelineStage(1):
    ...         outputs = keras.layers.Dense(1)(x)
    ...     model = PipelineModel(inputs, outputs, gradient_accumulation_count=4)
    ...     model.compile("sgd", "mse")
    ...     data = np.zeros((16, 4), np.float32), np.zeros((16, 1), np.float32)
    ...     history = model.fit(*data, batch_size=2, verbose=0)
    >>> history.params["steps"]
    2
    """

    _ipu = functools.cached_property(
        lambda model: PipelineOnIpu(model, LegacyModel, _IncreasingStages)
    )

    def __init__(
        self,
        inputs,
        outputs,
        *,
        gradient_accumulation_count: int | None = None,
        device_mapping: Sequence[int] | None = None,
        batch_serialization_iterations: int = 1,
        name: str | None = None,
        **pipeline_kwargs: Any,
    ):
        options = pipeline_options(
            gradient_accumulation_count,
            device_mapping,
            batch_serialization_iterations,
            pipeline_kwargs,
        )
        Functional.__init__(self, inputs, outputs, name=name)
        self._ipu.set(pipelining=options)
        staged = self._ipu.stages.resolved()
        self._ipu.stages.check(*staged)
        check_num_stages(len(set(staged.stages)), device_mapping)


class _IncreasingStages(FunctionalStages):
    """Stages that all layers must have from the beginning."""

    def check(self, calls, stages) -> None:
        check_completeness(calls, stages)
        _check_increasing(calls, stages)
        super().check(calls, stages)


def _check_increasing(calls: Sequence[LayerCall], stages: Sequence[int]) -> None:
    found = sorted({s for call, s in zip(calls, stages, strict=True) if call.is_layer})
    missing = sorted(set(range(found[-1])) - set(found)) if found else []
    if missing:
        raise noted(
            ValueError(
                "Pipeline stages in the graph need to be strictly increasing, found pipeline "
                f"stages {found}, however the following pipeline stages are missing {missing}."
            ),
            "Count the stages of the `PipelineStage` scopes from 0, without gaps.",
        )

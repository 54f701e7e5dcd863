"""The extension of Functional models."""

from typing import Any

from ipu_keras.keras.extensions.layer_calls import LayerCall, functional_calls
from ipu_keras.keras.extensions.model_extension import ModelExtension
from ipu_keras.keras.extensions.pipeline_stage_assignment import (
    FunctionalLayerPipelineStageAssignment,
)


class FunctionalExtension(ModelExtension):
    """What a Functional model made in an `IPUStrategy`'s scope gains.

    It can be pipelined by calls of layers, also of those in the Functional and Sequential
    models that it calls. The model has all its layers from the beginning.
    """

    _ipu_assignment_class = FunctionalLayerPipelineStageAssignment
    _ipu_takes_integers = False

    def _ipu_calls(self) -> tuple[LayerCall, ...]:
        return functional_calls(self)

    def _ipu_may_have_stages(self) -> bool:
        return True

    def _ipu_check_built(self, what: str) -> None:
        """It always is."""

    def _ipu_assignment(self, call: LayerCall, stage: int | None, calls) -> Any:
        return FunctionalLayerPipelineStageAssignment(call.operation, call.node_index, stage)

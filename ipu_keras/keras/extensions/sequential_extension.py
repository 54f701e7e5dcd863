"""The extension of Sequential models."""

from typing import Any

from ipu_keras.keras.extensions import pipeline_checks
from ipu_keras.keras.extensions.layer_calls import LayerCall, sequential_calls
from ipu_keras.keras.extensions.model_extension import ModelExtension
from ipu_keras.keras.extensions.pipeline_stage_assignment import (
    SequentialLayerPipelineStageAssignment,
)


class SequentialExtension(ModelExtension):
    """What a Sequential model made in an `IPUStrategy`'s scope gains.

    It can be pipelined by layers, a model in it being one layer, also before it is built.
    """

    _ipu_assignment_class = SequentialLayerPipelineStageAssignment

    def _ipu_calls(self) -> tuple[LayerCall, ...]:
        return sequential_calls(self)

    def _ipu_may_have_stages(self) -> bool:
        return True

    def _ipu_check_built(self, what: str) -> None:
        """It need not be."""

    def _ipu_check_stages(self, calls, stages) -> None:
        pipeline_checks.check_sequence(calls, stages)

    def _ipu_assignment(self, call: LayerCall, stage: int | None, calls) -> Any:
        return SequentialLayerPipelineStageAssignment(call.operation, stage)

    def _ipu_is_for(self, assignment: Any, call: LayerCall) -> bool:
        return assignment.layer is call.operation

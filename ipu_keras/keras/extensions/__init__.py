"""The IPU side of Keras models: the classes that models gain when a strategy's scope makes
them."""

from ipu_keras.keras.extensions.attachment import attach_extensions
from ipu_keras.keras.extensions.batch_norm import attach_batch_norm
from ipu_keras.keras.extensions.call_observer import attach_call_observer
from ipu_keras.keras.extensions.functional_extension import (
    FunctionalExtension as FunctionalExtension,
)
from ipu_keras.keras.extensions.joint_saving import attach_joint_saving
from ipu_keras.keras.extensions.joint_updates import attach_joint_updates
from ipu_keras.keras.extensions.lstm_backend import attach_lstm
from ipu_keras.keras.extensions.model_extension import ModelExtension as ModelExtension
from ipu_keras.keras.extensions.pipeline_stage import PipelineStage as PipelineStage
from ipu_keras.keras.extensions.pipeline_stage import attach_pipeline_stages
from ipu_keras.keras.extensions.pipeline_stage_assignment import (
    FunctionalLayerPipelineStageAssignment as FunctionalLayerPipelineStageAssignment,
)
from ipu_keras.keras.extensions.pipeline_stage_assignment import (
    ModelLayerPipelineStageAssignment as ModelLayerPipelineStageAssignment,
)
from ipu_keras.keras.extensions.pipeline_stage_assignment import (
    SequentialLayerPipelineStageAssignment as SequentialLayerPipelineStageAssignment,
)
from ipu_keras.keras.extensions.saved_options import attach_cloning
from ipu_keras.keras.extensions.scope_names import attach_scope_names
from ipu_keras.keras.extensions.sequential_extension import (
    SequentialExtension as SequentialExtension,
)

# Importing this package is what installs the hooks; each does nothing outside of a strategy's
# scope, and installing twice leaves one hook.
attach_batch_norm()
attach_extensions()
attach_lstm()
attach_pipeline_stages()
attach_call_observer()
attach_scope_names()
attach_cloning()
attach_joint_saving()
attach_joint_updates()

"""The description of work that every entry point builds, and what compiling it gives."""

from ipu_keras.program.data_types import FEED_DTYPES as FEED_DTYPES
from ipu_keras.program.pipeline import OUTLINED_SCOPE as OUTLINED_SCOPE
from ipu_keras.program.pipeline import WEIGHT_UPDATE_SCOPE as WEIGHT_UPDATE_SCOPE
from ipu_keras.program.pipeline import Pipeline as Pipeline
from ipu_keras.program.pipeline import PipelineChoices as PipelineChoices
from ipu_keras.program.pipeline import legal_in_scopes as legal_in_scopes
from ipu_keras.program.pipeline import stage_scope as stage_scope
from ipu_keras.program.program import Accumulation as Accumulation
from ipu_keras.program.program import DeviceChoices as DeviceChoices
from ipu_keras.program.program import OutfeedMode as OutfeedMode
from ipu_keras.program.program import Program as Program

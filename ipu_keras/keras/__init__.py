"""Package that IPU code imports as `keras.ipu` and `tensorflow.python.ipu.keras`."""

from ipu_keras.keras import extensions as extensions
from ipu_keras.keras import layers as layers
from ipu_keras.keras import losses as losses
from ipu_keras.keras.extensions import PipelineStage as PipelineStage
from ipu_keras.keras.legacy import Model as Model
from ipu_keras.keras.legacy import PipelineModel as PipelineModel
from ipu_keras.keras.legacy import PipelineSequential as PipelineSequential
from ipu_keras.keras.legacy import Sequential as Sequential

"""What IPU code finds as `keras.ipu` and `tensorflow.python.ipu.keras`."""

from ipu_keras.keras import extensions as extensions
from ipu_keras.keras.extensions import PipelineStage as PipelineStage

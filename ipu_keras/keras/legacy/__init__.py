"""The Keras models of SDK 2.1, `tensorflow.python.ipu.keras`, built on those of `keras.ipu`.

They take their options in the constructor, run whole epochs on the device, and count weight
updates as steps.
"""

from ipu_keras.keras.legacy.model import Model as Model
from ipu_keras.keras.legacy.pipeline_model import PipelineModel as PipelineModel
from ipu_keras.keras.legacy.pipeline_sequential import PipelineSequential as PipelineSequential
from ipu_keras.keras.legacy.sequential import Sequential as Sequential

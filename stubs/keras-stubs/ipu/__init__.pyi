# Written by `python tests/stub_files.py`.
from ipu_keras.keras import Model as Model
from ipu_keras.keras import PipelineModel as PipelineModel
from ipu_keras.keras import PipelineSequential as PipelineSequential
from ipu_keras.keras import PipelineStage as PipelineStage
from ipu_keras.keras import Sequential as Sequential
from ipu_keras.keras import extensions as extensions
from ipu_keras.keras import layers as layers
from ipu_keras.keras import losses as losses

# Written by `python tests/stub_files.py`.
from ipu_keras.pipelining_ops import OptimizerFunctionOutput as OptimizerFunctionOutput
from ipu_keras.pipelining_ops import PipelineSchedule as PipelineSchedule
from ipu_keras.pipelining_ops import PipelineStageOptions as PipelineStageOptions
from ipu_keras.pipelining_ops import RecomputationMode as RecomputationMode
from ipu_keras.pipelining_ops import pipeline as pipeline
from ipu_keras.pipelining_ops import recomputation_checkpoint as recomputation_checkpoint

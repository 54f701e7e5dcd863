"""PopART, as scripts get it by `import popart`: builds ONNX models and runs them."""

from ipu_keras import _requirements

# Before all imports below, so that a missing onnx is reported with its remedy.
_requirements.check_onnx()

from ipu_keras.popart import builder as builder
from ipu_keras.popart import session as session
from ipu_keras.popart import tensorinfo as tensorinfo
from ipu_keras.popart import writer as writer
from ipu_keras.popart.builder import Builder as Builder
from ipu_keras.popart.core import *
from ipu_keras.popart.core import _BuilderCore as _BuilderCore
from ipu_keras.popart.core import _InferenceSessionCore as _InferenceSessionCore
from ipu_keras.popart.core import _TensorInfoCore as _TensorInfoCore
from ipu_keras.popart.core import _TrainingSessionCore as _TrainingSessionCore
from ipu_keras.popart.files.transformer import GraphTransformer as GraphTransformer
from ipu_keras.popart.session import InferenceSession as InferenceSession
from ipu_keras.popart.session import OutOfMemoryException as OutOfMemoryException
from ipu_keras.popart.session import TrainingSession as TrainingSession
from ipu_keras.popart.tensorinfo import TensorInfo as TensorInfo
from ipu_keras.popart.writer import NetWriter as NetWriter

"""`popart_core`: the names of PopART's bindings, which scripts also reach by `popart`."""

from ipu_keras.popart.devices.info import DeviceInfo as DeviceInfo
from ipu_keras.popart.devices.manager import DeviceManager as DeviceManager
from ipu_keras.popart.exceptions import *
from ipu_keras.popart.files.numerics_report import NumericsReport as NumericsReport
from ipu_keras.popart.graphs.annotations import *
from ipu_keras.popart.graphs.builder_core import *
from ipu_keras.popart.graphs.builder_core import _BuilderCore as _BuilderCore
from ipu_keras.popart.graphs.debug_context import DebugContext as DebugContext
from ipu_keras.popart.graphs.debug_context import DebugInfo as DebugInfo
from ipu_keras.popart.graphs.debug_context import SourceLocation as SourceLocation
from ipu_keras.popart.graphs.opsets import *
from ipu_keras.popart.graphs.tensor_info import _TensorInfoCore as _TensorInfoCore
from ipu_keras.popart.graphs.tensor_info import getTensorInfo as getTensorInfo
from ipu_keras.popart.operations.identifiers import *
from ipu_keras.popart.optimizers.adam import Adam as Adam
from ipu_keras.popart.optimizers.adaptive import Adaptive as Adaptive
from ipu_keras.popart.optimizers.optimizer import Optimizer as Optimizer
from ipu_keras.popart.optimizers.sgd import SGD as SGD
from ipu_keras.popart.optimizers.sgd import ConstSGD as ConstSGD
from ipu_keras.popart.optimizers.values import OptimizerValue as OptimizerValue
from ipu_keras.popart.optimizers.values import OptimizerValueMap as OptimizerValueMap
from ipu_keras.popart.options.enumerations import *
from ipu_keras.popart.options.logger import Logger as Logger
from ipu_keras.popart.options.logger import getLogger as getLogger
from ipu_keras.popart.options.patterns import Patterns as Patterns
from ipu_keras.popart.options.prefixes import *
from ipu_keras.popart.options.session_options import SessionOptions as SessionOptions
from ipu_keras.popart.options.settings import *
from ipu_keras.popart.options.version import *
from ipu_keras.popart.sessions.dataflow import AnchorReturnType as AnchorReturnType
from ipu_keras.popart.sessions.dataflow import DataFlow as DataFlow
from ipu_keras.popart.sessions.input_shapes import InputShapeInfo as InputShapeInfo
from ipu_keras.popart.sessions.session import _InferenceSessionCore as _InferenceSessionCore
from ipu_keras.popart.sessions.step_io import *
from ipu_keras.popart.sessions.trained import _TrainingSessionCore as _TrainingSessionCore

"""PopART: builds, runs and trains ONNX models, as `import popart`."""

from ipu_keras.popart import builder as builder
from ipu_keras.popart import tensorinfo as tensorinfo
from ipu_keras.popart.builder import Builder as Builder
from ipu_keras.popart.core import CommGroupType as CommGroupType
from ipu_keras.popart.core import DataType as DataType
from ipu_keras.popart.core import DebugContext as DebugContext
from ipu_keras.popart.core import InitType as InitType
from ipu_keras.popart.core import RecomputeType as RecomputeType
from ipu_keras.popart.core import ReductionType as ReductionType
from ipu_keras.popart.core import ReplicatedTensorSharding as ReplicatedTensorSharding
from ipu_keras.popart.core import ScatterReduction as ScatterReduction
from ipu_keras.popart.core import TensorLocation as TensorLocation
from ipu_keras.popart.core import TensorStorage as TensorStorage
from ipu_keras.popart.core import TileSet as TileSet
from ipu_keras.popart.core import _BuilderCore as _BuilderCore
from ipu_keras.popart.core import _TensorInfoCore as _TensorInfoCore
from ipu_keras.popart.tensorinfo import TensorInfo as TensorInfo

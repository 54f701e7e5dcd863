"""`popart_core`: the classes behind those of `popart`."""

from ipu_keras.popart.graphs.annotations import AttributeContextManager as AttributeContextManager
from ipu_keras.popart.graphs.annotations import KeyValueContextManager as KeyValueContextManager
from ipu_keras.popart.graphs.annotations import NameContextManager as NameContextManager
from ipu_keras.popart.graphs.builder_core import _BuilderCore as _BuilderCore
from ipu_keras.popart.graphs.debug_context import DebugContext as DebugContext
from ipu_keras.popart.graphs.opsets import AiGraphcoreOpset1 as AiGraphcoreOpset1
from ipu_keras.popart.graphs.opsets import AiOnnxMlOpset1 as AiOnnxMlOpset1
from ipu_keras.popart.graphs.opsets import AiOnnxOpset6 as AiOnnxOpset6
from ipu_keras.popart.graphs.opsets import AiOnnxOpset7 as AiOnnxOpset7
from ipu_keras.popart.graphs.opsets import AiOnnxOpset8 as AiOnnxOpset8
from ipu_keras.popart.graphs.opsets import AiOnnxOpset9 as AiOnnxOpset9
from ipu_keras.popart.graphs.opsets import AiOnnxOpset10 as AiOnnxOpset10
from ipu_keras.popart.graphs.opsets import AiOnnxOpset11 as AiOnnxOpset11
from ipu_keras.popart.graphs.tensor_info import _TensorInfoCore as _TensorInfoCore
from ipu_keras.popart.graphs.tensor_location import TensorLocation as TensorLocation
from ipu_keras.popart.options.enumerations import CommGroupType as CommGroupType
from ipu_keras.popart.options.enumerations import DataType as DataType
from ipu_keras.popart.options.enumerations import InitType as InitType
from ipu_keras.popart.options.enumerations import RecomputeType as RecomputeType
from ipu_keras.popart.options.enumerations import ReductionType as ReductionType
from ipu_keras.popart.options.enumerations import (
    ReplicatedTensorSharding as ReplicatedTensorSharding,
)
from ipu_keras.popart.options.enumerations import ScatterReduction as ScatterReduction
from ipu_keras.popart.options.enumerations import TensorStorage as TensorStorage
from ipu_keras.popart.options.enumerations import TileSet as TileSet

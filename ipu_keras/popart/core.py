"""`popart_core`: the names of PopART's bindings, which scripts also reach by `popart`."""

from typing import Any

from ipu_keras._missing_names import missing_attribute
from ipu_keras.popart.devices.info import DeviceInfo as DeviceInfo
from ipu_keras.popart.devices.manager import DeviceManager as DeviceManager
from ipu_keras.popart.exceptions import OutOfMemoryError as OutOfMemoryError
from ipu_keras.popart.exceptions import popart_exception as popart_exception
from ipu_keras.popart.exceptions import popart_internal_exception as popart_internal_exception
from ipu_keras.popart.exceptions import poplar_exception as poplar_exception
from ipu_keras.popart.exceptions import poplibs_exception as poplibs_exception
from ipu_keras.popart.graphs.annotations import AttributeContextManager as AttributeContextManager
from ipu_keras.popart.graphs.annotations import KeyValueContextManager as KeyValueContextManager
from ipu_keras.popart.graphs.annotations import NameContextManager as NameContextManager
from ipu_keras.popart.graphs.builder_core import _BuilderCore as _BuilderCore
from ipu_keras.popart.graphs.builder_core import defaultAiGraphcoreOpset as defaultAiGraphcoreOpset
from ipu_keras.popart.graphs.builder_core import defaultAiOnnxMlOpset as defaultAiOnnxMlOpset
from ipu_keras.popart.graphs.builder_core import defaultAiOnnxOpset as defaultAiOnnxOpset
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
from ipu_keras.popart.graphs.tensor_info import getTensorInfo as getTensorInfo
from ipu_keras.popart.model.numerics_report import NumericsReport as NumericsReport
from ipu_keras.popart.operations.identifiers import OpDefinition as OpDefinition
from ipu_keras.popart.operations.identifiers import OperatorIdentifier as OperatorIdentifier
from ipu_keras.popart.operations.identifiers import (
    getSupportedOperations as getSupportedOperations,
)
from ipu_keras.popart.operations.identifiers import (
    getSupportedOperationsDefinition as getSupportedOperationsDefinition,
)
from ipu_keras.popart.operations.identifiers import (
    getUnsupportedOperations as getUnsupportedOperations,
)
from ipu_keras.popart.optimizers.adam import Adam as Adam
from ipu_keras.popart.optimizers.adaptive import Adaptive as Adaptive
from ipu_keras.popart.optimizers.optimizer import Optimizer as Optimizer
from ipu_keras.popart.optimizers.sgd import SGD as SGD
from ipu_keras.popart.optimizers.sgd import ConstSGD as ConstSGD
from ipu_keras.popart.optimizers.values import OptimizerValue as OptimizerValue
from ipu_keras.popart.optimizers.values import OptimizerValueMap as OptimizerValueMap
from ipu_keras.popart.options.enumerations import (
    AccumulateOuterFragmentSchedule as AccumulateOuterFragmentSchedule,
)
from ipu_keras.popart.options.enumerations import AdamMode as AdamMode
from ipu_keras.popart.options.enumerations import AdaptiveMode as AdaptiveMode
from ipu_keras.popart.options.enumerations import AnchorReturnTypeId as AnchorReturnTypeId
from ipu_keras.popart.options.enumerations import AutodiffStitchStrategy as AutodiffStitchStrategy
from ipu_keras.popart.options.enumerations import (
    BatchSerializationBatchSchedule as BatchSerializationBatchSchedule,
)
from ipu_keras.popart.options.enumerations import (
    BatchSerializationMethod as BatchSerializationMethod,
)
from ipu_keras.popart.options.enumerations import (
    BatchSerializationTransformContext as BatchSerializationTransformContext,
)
from ipu_keras.popart.options.enumerations import CommGroupType as CommGroupType
from ipu_keras.popart.options.enumerations import DataType as DataType
from ipu_keras.popart.options.enumerations import DeviceConnectionType as DeviceConnectionType
from ipu_keras.popart.options.enumerations import (
    DeviceSelectionCriterion as DeviceSelectionCriterion,
)
from ipu_keras.popart.options.enumerations import DeviceType as DeviceType
from ipu_keras.popart.options.enumerations import DotCheck as DotCheck
from ipu_keras.popart.options.enumerations import (
    ExecutionPhaseIOSchedule as ExecutionPhaseIOSchedule,
)
from ipu_keras.popart.options.enumerations import ExecutionPhaseSchedule as ExecutionPhaseSchedule
from ipu_keras.popart.options.enumerations import InitType as InitType
from ipu_keras.popart.options.enumerations import Instrumentation as Instrumentation
from ipu_keras.popart.options.enumerations import IrSerializationFormat as IrSerializationFormat
from ipu_keras.popart.options.enumerations import MergeVarUpdateType as MergeVarUpdateType
from ipu_keras.popart.options.enumerations import PatternsLevel as PatternsLevel
from ipu_keras.popart.options.enumerations import PreAliasPatternType as PreAliasPatternType
from ipu_keras.popart.options.enumerations import RecomputationType as RecomputationType
from ipu_keras.popart.options.enumerations import RecomputeType as RecomputeType
from ipu_keras.popart.options.enumerations import ReductionType as ReductionType
from ipu_keras.popart.options.enumerations import (
    ReplicatedTensorSharding as ReplicatedTensorSharding,
)
from ipu_keras.popart.options.enumerations import ScatterReduction as ScatterReduction
from ipu_keras.popart.options.enumerations import (
    SGDAccumulatorAndMomentum as SGDAccumulatorAndMomentum,
)
from ipu_keras.popart.options.enumerations import SubgraphCopyingStrategy as SubgraphCopyingStrategy
from ipu_keras.popart.options.enumerations import SyncPattern as SyncPattern
from ipu_keras.popart.options.enumerations import SyntheticDataMode as SyntheticDataMode
from ipu_keras.popart.options.enumerations import TensorStorage as TensorStorage
from ipu_keras.popart.options.enumerations import TileSet as TileSet
from ipu_keras.popart.options.enumerations import VirtualGraphMode as VirtualGraphMode
from ipu_keras.popart.options.enumerations import WeightDecayMode as WeightDecayMode
from ipu_keras.popart.options.enumerations import syncPatternFromString as syncPatternFromString
from ipu_keras.popart.options.enumerations import syncPatternToString as syncPatternToString
from ipu_keras.popart.options.logger import Logger as Logger
from ipu_keras.popart.options.logger import getLogger as getLogger
from ipu_keras.popart.options.patterns import Patterns as Patterns
from ipu_keras.popart.options.prefixes import hostReduceGradCopyPrefix as hostReduceGradCopyPrefix
from ipu_keras.popart.options.prefixes import hostReduceVarCopyPrefix as hostReduceVarCopyPrefix
from ipu_keras.popart.options.prefixes import reservedAccl1Prefix as reservedAccl1Prefix
from ipu_keras.popart.options.prefixes import reservedAccl2Prefix as reservedAccl2Prefix
from ipu_keras.popart.options.prefixes import reservedAccl3Prefix as reservedAccl3Prefix
from ipu_keras.popart.options.prefixes import (
    reservedAcclFinalOutPrefix as reservedAcclFinalOutPrefix,
)
from ipu_keras.popart.options.prefixes import reservedAcclPrefix as reservedAcclPrefix
from ipu_keras.popart.options.prefixes import (
    reservedAcclToReducePrefix as reservedAcclToReducePrefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedAcclToUpdatePrefix as reservedAcclToUpdatePrefix,
)
from ipu_keras.popart.options.prefixes import reservedAccumPrefix as reservedAccumPrefix
from ipu_keras.popart.options.prefixes import reservedAdamUpdaterPrefix as reservedAdamUpdaterPrefix
from ipu_keras.popart.options.prefixes import (
    reservedDefaultAdamBeta1Prefix as reservedDefaultAdamBeta1Prefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedDefaultAdamBeta2Prefix as reservedDefaultAdamBeta2Prefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedDefaultAdamEpsPrefix as reservedDefaultAdamEpsPrefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedDefaultDampeningScaleFactor1Prefix as reservedDefaultDampeningScaleFactor1Prefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedDefaultLearningRatePrefix as reservedDefaultLearningRatePrefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedDefaultLossScalingPrefix as reservedDefaultLossScalingPrefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedDefaultMaxWeightNormPrefix as reservedDefaultMaxWeightNormPrefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedDefaultScaledLearningRate0Prefix as reservedDefaultScaledLearningRate0Prefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedDefaultScaledLearningRate1Prefix as reservedDefaultScaledLearningRate1Prefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedDefaultScaledMomentum1Prefix as reservedDefaultScaledMomentum1Prefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedDefaultScaledWeightDecay1Prefix as reservedDefaultScaledWeightDecay1Prefix,
)
from ipu_keras.popart.options.prefixes import reservedDefaultStepPrefix as reservedDefaultStepPrefix
from ipu_keras.popart.options.prefixes import (
    reservedDefaultWeightDecayPrefix as reservedDefaultWeightDecayPrefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedDefaultWeightDecayScaleFactor0Prefix as reservedDefaultWeightDecayScaleFactor0Prefix,
)
from ipu_keras.popart.options.prefixes import reservedGradientPrefix as reservedGradientPrefix
from ipu_keras.popart.options.prefixes import reservedLambR1SqPrefix as reservedLambR1SqPrefix
from ipu_keras.popart.options.prefixes import reservedLambR2SqPrefix as reservedLambR2SqPrefix
from ipu_keras.popart.options.prefixes import reservedLossScalingPrefix as reservedLossScalingPrefix
from ipu_keras.popart.options.prefixes import reservedRandomSeedPrefix as reservedRandomSeedPrefix
from ipu_keras.popart.options.prefixes import reservedRemoteArgPrefix as reservedRemoteArgPrefix
from ipu_keras.popart.options.prefixes import reservedRestoredPrefix as reservedRestoredPrefix
from ipu_keras.popart.options.prefixes import (
    reservedSeedModifierPrefix as reservedSeedModifierPrefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedSpecificAdamBeta1Prefix as reservedSpecificAdamBeta1Prefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedSpecificAdamBeta2Prefix as reservedSpecificAdamBeta2Prefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedSpecificAdamEpsPrefix as reservedSpecificAdamEpsPrefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedSpecificDampeningScaleFactor1Prefix as reservedSpecificDampeningScaleFactor1Prefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedSpecificLearningRatePrefix as reservedSpecificLearningRatePrefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedSpecificLossScalingPrefix as reservedSpecificLossScalingPrefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedSpecificMaxWeightNormPrefix as reservedSpecificMaxWeightNormPrefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedSpecificScaledLearningRate0Prefix as reservedSpecificScaledLearningRate0Prefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedSpecificScaledLearningRate1Prefix as reservedSpecificScaledLearningRate1Prefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedSpecificScaledMomentum1Prefix as reservedSpecificScaledMomentum1Prefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedSpecificScaledWeightDecay1Prefix as reservedSpecificScaledWeightDecay1Prefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedSpecificStepPrefix as reservedSpecificStepPrefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedSpecificWeightDecayPrefix as reservedSpecificWeightDecayPrefix,
)
from ipu_keras.popart.options.prefixes import (
    reservedSpecificWeightDecayScaleFactor0Prefix as reservedSpecificWeightDecayScaleFactor0Prefix,
)
from ipu_keras.popart.options.prefixes import reservedStashedPrefix as reservedStashedPrefix
from ipu_keras.popart.options.prefixes import reservedStepPrefix as reservedStepPrefix
from ipu_keras.popart.options.prefixes import reservedUpdatedVarPrefix as reservedUpdatedVarPrefix
from ipu_keras.popart.options.session_options import SessionOptions as SessionOptions
from ipu_keras.popart.options.settings import (
    AccumulateOuterFragmentSettings as AccumulateOuterFragmentSettings,
)
from ipu_keras.popart.options.settings import AutodiffSettings as AutodiffSettings
from ipu_keras.popart.options.settings import (
    AutomaticLossScalingSettings as AutomaticLossScalingSettings,
)
from ipu_keras.popart.options.settings import (
    BatchSerializationSettings as BatchSerializationSettings,
)
from ipu_keras.popart.options.settings import ClipNormSettings as ClipNormSettings
from ipu_keras.popart.options.settings import CommGroup as CommGroup
from ipu_keras.popart.options.settings import ExecutionPhaseSettings as ExecutionPhaseSettings
from ipu_keras.popart.options.settings import NumIOTiles as NumIOTiles
from ipu_keras.popart.options.settings import TensorLocation as TensorLocation
from ipu_keras.popart.options.settings import TensorLocationSettings as TensorLocationSettings
from ipu_keras.popart.options.version import packageHash as packageHash
from ipu_keras.popart.options.version import versionNumber as versionNumber
from ipu_keras.popart.options.version import versionString as versionString
from ipu_keras.popart.sessions.dataflow import AnchorReturnType as AnchorReturnType
from ipu_keras.popart.sessions.dataflow import DataFlow as DataFlow
from ipu_keras.popart.sessions.input_shapes import InputShapeInfo as InputShapeInfo
from ipu_keras.popart.sessions.session import _InferenceSessionCore as _InferenceSessionCore
from ipu_keras.popart.sessions.step_io import IStepIO as IStepIO
from ipu_keras.popart.sessions.step_io import IWeightsIO as IWeightsIO
from ipu_keras.popart.sessions.step_io import PyStepIO as PyStepIO
from ipu_keras.popart.sessions.step_io import PyStepIOCallback as PyStepIOCallback
from ipu_keras.popart.sessions.step_io import PyWeightsIO as PyWeightsIO
from ipu_keras.popart.sessions.trained import _TrainingSessionCore as _TrainingSessionCore

# `from popart_core import name` shows what `__getattr__` says of a missing documented name only if
# the module has a `__path__`; else Python replaces the error by its own.
__path__: list[str] = []


def __getattr__(name: str) -> Any:
    raise missing_attribute(__name__, name)

"""PopART, as scripts get it by `import popart`: builds ONNX models and runs them."""

from typing import Any

from ipu_keras import _requirements
from ipu_keras._missing_names import missing_attribute

# Before all imports below, so that a missing onnx is reported with its remedy.
_requirements.check_onnx()

from ipu_keras.popart import builder as builder
from ipu_keras.popart import session as session
from ipu_keras.popart import tensorinfo as tensorinfo
from ipu_keras.popart import writer as writer
from ipu_keras.popart.builder import Builder as Builder
from ipu_keras.popart.core import SGD as SGD
from ipu_keras.popart.core import AccumulateOuterFragmentSchedule as AccumulateOuterFragmentSchedule
from ipu_keras.popart.core import AccumulateOuterFragmentSettings as AccumulateOuterFragmentSettings
from ipu_keras.popart.core import Adam as Adam
from ipu_keras.popart.core import AdamMode as AdamMode
from ipu_keras.popart.core import Adaptive as Adaptive
from ipu_keras.popart.core import AdaptiveMode as AdaptiveMode
from ipu_keras.popart.core import AiGraphcoreOpset1 as AiGraphcoreOpset1
from ipu_keras.popart.core import AiOnnxMlOpset1 as AiOnnxMlOpset1
from ipu_keras.popart.core import AiOnnxOpset6 as AiOnnxOpset6
from ipu_keras.popart.core import AiOnnxOpset7 as AiOnnxOpset7
from ipu_keras.popart.core import AiOnnxOpset8 as AiOnnxOpset8
from ipu_keras.popart.core import AiOnnxOpset9 as AiOnnxOpset9
from ipu_keras.popart.core import AiOnnxOpset10 as AiOnnxOpset10
from ipu_keras.popart.core import AiOnnxOpset11 as AiOnnxOpset11
from ipu_keras.popart.core import AnchorReturnType as AnchorReturnType
from ipu_keras.popart.core import AnchorReturnTypeId as AnchorReturnTypeId
from ipu_keras.popart.core import AttributeContextManager as AttributeContextManager
from ipu_keras.popart.core import AutodiffSettings as AutodiffSettings
from ipu_keras.popart.core import AutodiffStitchStrategy as AutodiffStitchStrategy
from ipu_keras.popart.core import AutomaticLossScalingSettings as AutomaticLossScalingSettings
from ipu_keras.popart.core import BatchSerializationBatchSchedule as BatchSerializationBatchSchedule
from ipu_keras.popart.core import BatchSerializationMethod as BatchSerializationMethod
from ipu_keras.popart.core import BatchSerializationSettings as BatchSerializationSettings
from ipu_keras.popart.core import (
    BatchSerializationTransformContext as BatchSerializationTransformContext,
)
from ipu_keras.popart.core import ClipNormSettings as ClipNormSettings
from ipu_keras.popart.core import CommGroup as CommGroup
from ipu_keras.popart.core import CommGroupType as CommGroupType
from ipu_keras.popart.core import ConstSGD as ConstSGD
from ipu_keras.popart.core import DataFlow as DataFlow
from ipu_keras.popart.core import DataType as DataType
from ipu_keras.popart.core import DebugContext as DebugContext
from ipu_keras.popart.core import DeviceConnectionType as DeviceConnectionType
from ipu_keras.popart.core import DeviceInfo as DeviceInfo
from ipu_keras.popart.core import DeviceManager as DeviceManager
from ipu_keras.popart.core import DeviceSelectionCriterion as DeviceSelectionCriterion
from ipu_keras.popart.core import DeviceType as DeviceType
from ipu_keras.popart.core import DotCheck as DotCheck
from ipu_keras.popart.core import ExecutionPhaseIOSchedule as ExecutionPhaseIOSchedule
from ipu_keras.popart.core import ExecutionPhaseSchedule as ExecutionPhaseSchedule
from ipu_keras.popart.core import ExecutionPhaseSettings as ExecutionPhaseSettings
from ipu_keras.popart.core import InitType as InitType
from ipu_keras.popart.core import InputShapeInfo as InputShapeInfo
from ipu_keras.popart.core import Instrumentation as Instrumentation
from ipu_keras.popart.core import IrSerializationFormat as IrSerializationFormat
from ipu_keras.popart.core import IStepIO as IStepIO
from ipu_keras.popart.core import IWeightsIO as IWeightsIO
from ipu_keras.popart.core import KeyValueContextManager as KeyValueContextManager
from ipu_keras.popart.core import Logger as Logger
from ipu_keras.popart.core import MergeVarUpdateType as MergeVarUpdateType
from ipu_keras.popart.core import NameContextManager as NameContextManager
from ipu_keras.popart.core import NumericsReport as NumericsReport
from ipu_keras.popart.core import NumIOTiles as NumIOTiles
from ipu_keras.popart.core import OpDefinition as OpDefinition
from ipu_keras.popart.core import OperatorIdentifier as OperatorIdentifier
from ipu_keras.popart.core import Optimizer as Optimizer
from ipu_keras.popart.core import OptimizerValue as OptimizerValue
from ipu_keras.popart.core import OptimizerValueMap as OptimizerValueMap
from ipu_keras.popart.core import OutOfMemoryError as OutOfMemoryError
from ipu_keras.popart.core import Patterns as Patterns
from ipu_keras.popart.core import PatternsLevel as PatternsLevel
from ipu_keras.popart.core import PreAliasPatternType as PreAliasPatternType
from ipu_keras.popart.core import PyStepIO as PyStepIO
from ipu_keras.popart.core import PyStepIOCallback as PyStepIOCallback
from ipu_keras.popart.core import PyWeightsIO as PyWeightsIO
from ipu_keras.popart.core import RecomputationType as RecomputationType
from ipu_keras.popart.core import RecomputeType as RecomputeType
from ipu_keras.popart.core import ReductionType as ReductionType
from ipu_keras.popart.core import ReplicatedTensorSharding as ReplicatedTensorSharding
from ipu_keras.popart.core import ScatterReduction as ScatterReduction
from ipu_keras.popart.core import SessionOptions as SessionOptions
from ipu_keras.popart.core import SGDAccumulatorAndMomentum as SGDAccumulatorAndMomentum
from ipu_keras.popart.core import SubgraphCopyingStrategy as SubgraphCopyingStrategy
from ipu_keras.popart.core import SyncPattern as SyncPattern
from ipu_keras.popart.core import SyntheticDataMode as SyntheticDataMode
from ipu_keras.popart.core import TensorLocation as TensorLocation
from ipu_keras.popart.core import TensorLocationSettings as TensorLocationSettings
from ipu_keras.popart.core import TensorStorage as TensorStorage
from ipu_keras.popart.core import TileSet as TileSet
from ipu_keras.popart.core import VirtualGraphMode as VirtualGraphMode
from ipu_keras.popart.core import WeightDecayMode as WeightDecayMode
from ipu_keras.popart.core import _BuilderCore as _BuilderCore
from ipu_keras.popart.core import _InferenceSessionCore as _InferenceSessionCore
from ipu_keras.popart.core import _TensorInfoCore as _TensorInfoCore
from ipu_keras.popart.core import _TrainingSessionCore as _TrainingSessionCore
from ipu_keras.popart.core import defaultAiGraphcoreOpset as defaultAiGraphcoreOpset
from ipu_keras.popart.core import defaultAiOnnxMlOpset as defaultAiOnnxMlOpset
from ipu_keras.popart.core import defaultAiOnnxOpset as defaultAiOnnxOpset
from ipu_keras.popart.core import getLogger as getLogger
from ipu_keras.popart.core import getSupportedOperations as getSupportedOperations
from ipu_keras.popart.core import (
    getSupportedOperationsDefinition as getSupportedOperationsDefinition,
)
from ipu_keras.popart.core import getTensorInfo as getTensorInfo
from ipu_keras.popart.core import getUnsupportedOperations as getUnsupportedOperations
from ipu_keras.popart.core import hostReduceGradCopyPrefix as hostReduceGradCopyPrefix
from ipu_keras.popart.core import hostReduceVarCopyPrefix as hostReduceVarCopyPrefix
from ipu_keras.popart.core import packageHash as packageHash
from ipu_keras.popart.core import popart_exception as popart_exception
from ipu_keras.popart.core import popart_internal_exception as popart_internal_exception
from ipu_keras.popart.core import poplar_exception as poplar_exception
from ipu_keras.popart.core import poplibs_exception as poplibs_exception
from ipu_keras.popart.core import reservedAccl1Prefix as reservedAccl1Prefix
from ipu_keras.popart.core import reservedAccl2Prefix as reservedAccl2Prefix
from ipu_keras.popart.core import reservedAccl3Prefix as reservedAccl3Prefix
from ipu_keras.popart.core import reservedAcclFinalOutPrefix as reservedAcclFinalOutPrefix
from ipu_keras.popart.core import reservedAcclPrefix as reservedAcclPrefix
from ipu_keras.popart.core import reservedAcclToReducePrefix as reservedAcclToReducePrefix
from ipu_keras.popart.core import reservedAcclToUpdatePrefix as reservedAcclToUpdatePrefix
from ipu_keras.popart.core import reservedAccumPrefix as reservedAccumPrefix
from ipu_keras.popart.core import reservedAdamUpdaterPrefix as reservedAdamUpdaterPrefix
from ipu_keras.popart.core import reservedDefaultAdamBeta1Prefix as reservedDefaultAdamBeta1Prefix
from ipu_keras.popart.core import reservedDefaultAdamBeta2Prefix as reservedDefaultAdamBeta2Prefix
from ipu_keras.popart.core import reservedDefaultAdamEpsPrefix as reservedDefaultAdamEpsPrefix
from ipu_keras.popart.core import (
    reservedDefaultDampeningScaleFactor1Prefix as reservedDefaultDampeningScaleFactor1Prefix,
)
from ipu_keras.popart.core import (
    reservedDefaultLearningRatePrefix as reservedDefaultLearningRatePrefix,
)
from ipu_keras.popart.core import (
    reservedDefaultLossScalingPrefix as reservedDefaultLossScalingPrefix,
)
from ipu_keras.popart.core import (
    reservedDefaultMaxWeightNormPrefix as reservedDefaultMaxWeightNormPrefix,
)
from ipu_keras.popart.core import (
    reservedDefaultScaledLearningRate0Prefix as reservedDefaultScaledLearningRate0Prefix,
)
from ipu_keras.popart.core import (
    reservedDefaultScaledLearningRate1Prefix as reservedDefaultScaledLearningRate1Prefix,
)
from ipu_keras.popart.core import (
    reservedDefaultScaledMomentum1Prefix as reservedDefaultScaledMomentum1Prefix,
)
from ipu_keras.popart.core import (
    reservedDefaultScaledWeightDecay1Prefix as reservedDefaultScaledWeightDecay1Prefix,
)
from ipu_keras.popart.core import reservedDefaultStepPrefix as reservedDefaultStepPrefix
from ipu_keras.popart.core import (
    reservedDefaultWeightDecayPrefix as reservedDefaultWeightDecayPrefix,
)
from ipu_keras.popart.core import (
    reservedDefaultWeightDecayScaleFactor0Prefix as reservedDefaultWeightDecayScaleFactor0Prefix,
)
from ipu_keras.popart.core import reservedGradientPrefix as reservedGradientPrefix
from ipu_keras.popart.core import reservedLambR1SqPrefix as reservedLambR1SqPrefix
from ipu_keras.popart.core import reservedLambR2SqPrefix as reservedLambR2SqPrefix
from ipu_keras.popart.core import reservedLossScalingPrefix as reservedLossScalingPrefix
from ipu_keras.popart.core import reservedRandomSeedPrefix as reservedRandomSeedPrefix
from ipu_keras.popart.core import reservedRemoteArgPrefix as reservedRemoteArgPrefix
from ipu_keras.popart.core import reservedRestoredPrefix as reservedRestoredPrefix
from ipu_keras.popart.core import reservedSeedModifierPrefix as reservedSeedModifierPrefix
from ipu_keras.popart.core import reservedSpecificAdamBeta1Prefix as reservedSpecificAdamBeta1Prefix
from ipu_keras.popart.core import reservedSpecificAdamBeta2Prefix as reservedSpecificAdamBeta2Prefix
from ipu_keras.popart.core import reservedSpecificAdamEpsPrefix as reservedSpecificAdamEpsPrefix
from ipu_keras.popart.core import (
    reservedSpecificDampeningScaleFactor1Prefix as reservedSpecificDampeningScaleFactor1Prefix,
)
from ipu_keras.popart.core import (
    reservedSpecificLearningRatePrefix as reservedSpecificLearningRatePrefix,
)
from ipu_keras.popart.core import (
    reservedSpecificLossScalingPrefix as reservedSpecificLossScalingPrefix,
)
from ipu_keras.popart.core import (
    reservedSpecificMaxWeightNormPrefix as reservedSpecificMaxWeightNormPrefix,
)
from ipu_keras.popart.core import (
    reservedSpecificScaledLearningRate0Prefix as reservedSpecificScaledLearningRate0Prefix,
)
from ipu_keras.popart.core import (
    reservedSpecificScaledLearningRate1Prefix as reservedSpecificScaledLearningRate1Prefix,
)
from ipu_keras.popart.core import (
    reservedSpecificScaledMomentum1Prefix as reservedSpecificScaledMomentum1Prefix,
)
from ipu_keras.popart.core import (
    reservedSpecificScaledWeightDecay1Prefix as reservedSpecificScaledWeightDecay1Prefix,
)
from ipu_keras.popart.core import reservedSpecificStepPrefix as reservedSpecificStepPrefix
from ipu_keras.popart.core import (
    reservedSpecificWeightDecayPrefix as reservedSpecificWeightDecayPrefix,
)
from ipu_keras.popart.core import (
    reservedSpecificWeightDecayScaleFactor0Prefix as reservedSpecificWeightDecayScaleFactor0Prefix,
)
from ipu_keras.popart.core import reservedStashedPrefix as reservedStashedPrefix
from ipu_keras.popart.core import reservedStepPrefix as reservedStepPrefix
from ipu_keras.popart.core import reservedUpdatedVarPrefix as reservedUpdatedVarPrefix
from ipu_keras.popart.core import syncPatternFromString as syncPatternFromString
from ipu_keras.popart.core import syncPatternToString as syncPatternToString
from ipu_keras.popart.core import versionNumber as versionNumber
from ipu_keras.popart.core import versionString as versionString
from ipu_keras.popart.model.transformer import GraphTransformer as GraphTransformer
from ipu_keras.popart.session import InferenceSession as InferenceSession
from ipu_keras.popart.session import OutOfMemoryException as OutOfMemoryException
from ipu_keras.popart.session import TrainingSession as TrainingSession
from ipu_keras.popart.tensorinfo import TensorInfo as TensorInfo
from ipu_keras.popart.writer import NetWriter as NetWriter


def __getattr__(name: str) -> Any:
    raise missing_attribute(__name__, name)

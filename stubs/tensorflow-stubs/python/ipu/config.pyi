# Written by `python tests/stub_files.py`.
from ipu_keras.config import AttributeMetadata as AttributeMetadata
from ipu_keras.config import DeviceConnectionType as DeviceConnectionType
from ipu_keras.config import ExecutionProfileType as ExecutionProfileType
from ipu_keras.config import IPUConfig as IPUConfig
from ipu_keras.config import KeyId as KeyId
from ipu_keras.config import MergeRemoteBuffersBehaviour as MergeRemoteBuffersBehaviour
from ipu_keras.config import SchedulingAlgorithm as SchedulingAlgorithm
from ipu_keras.config import SelectionOrder as SelectionOrder
from ipu_keras.config import StochasticRoundingBehaviour as StochasticRoundingBehaviour
from ipu_keras.config import VerificationOptions as VerificationOptions
from ipu_keras.config import configure_ipu_system as configure_ipu_system
from ipu_keras.config import get_ipu_config as get_ipu_config
from ipu_keras.config import reset_ipu_configuration as reset_ipu_configuration

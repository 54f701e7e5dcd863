# Written by `python tests/stub_files.py`.
from ipu_keras.popdist import checkNumIpusPerReplica as checkNumIpusPerReplica
from ipu_keras.popdist import execute_on_instances as execute_on_instances
from ipu_keras.popdist import getDeviceId as getDeviceId
from ipu_keras.popdist import getInstanceIndex as getInstanceIndex
from ipu_keras.popdist import getNumInstances as getNumInstances
from ipu_keras.popdist import getNumIpusPerReplica as getNumIpusPerReplica
from ipu_keras.popdist import getNumLocalReplicas as getNumLocalReplicas
from ipu_keras.popdist import getNumTotalReplicas as getNumTotalReplicas
from ipu_keras.popdist import getReplicaIndexOffset as getReplicaIndexOffset
from ipu_keras.popdist import init as init
from ipu_keras.popdist import isBackendInitialized as isBackendInitialized
from ipu_keras.popdist import isPopdistEnvSet as isPopdistEnvSet
from popdist import popart as popart
from ipu_keras.popdist import set_ipu_config as set_ipu_config
from popdist import tensorflow as tensorflow

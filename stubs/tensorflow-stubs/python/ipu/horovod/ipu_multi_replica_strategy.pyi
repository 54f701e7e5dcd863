# Written by `python tests/stub_files.py`.
from ipu_keras.horovod.ipu_multi_replica_strategy import IPUMultiReplicaStrategy as IPUMultiReplicaStrategy
from ipu_keras.horovod.ipu_multi_replica_strategy import IPUMultiReplicaStrategyV1 as IPUMultiReplicaStrategyV1

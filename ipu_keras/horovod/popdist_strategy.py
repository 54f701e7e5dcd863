"""The newer name of the strategy of replicas that are spread over processes."""

from ipu_keras.horovod.ipu_multi_replica_strategy import IPUMultiReplicaStrategy

PopDistStrategy = IPUMultiReplicaStrategy

# Written by `python tests/stub_files.py`.
from ipu_keras.optimizers.cross_replica_optimizer import CrossReplicaOptimizer as CrossReplicaOptimizer
from ipu_keras.optimizers.cross_replica_optimizer import averages as averages
from ipu_keras.optimizers.cross_replica_optimizer import without_exchange as without_exchange

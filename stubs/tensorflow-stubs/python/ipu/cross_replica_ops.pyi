# Written by `python tests/stub_files.py`.
from ipu_keras.ops.cross_replica_ops import assume_equal_across_replicas as assume_equal_across_replicas
from ipu_keras.ops.cross_replica_ops import cross_replica_mean as cross_replica_mean
from ipu_keras.ops.cross_replica_ops import cross_replica_sum as cross_replica_sum

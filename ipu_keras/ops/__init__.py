"""Operations that TensorFlow lacks, or has only as many small ones."""

from ipu_keras import pipelining_ops as pipelining_ops
from ipu_keras.ops import all_to_all_op as all_to_all_op
from ipu_keras.ops import cross_replica_ops as cross_replica_ops
from ipu_keras.ops import reduce_scatter_op as reduce_scatter_op
from ipu_keras.ops import replication_ops as replication_ops
from ipu_keras.ops import rnn_ops as rnn_ops

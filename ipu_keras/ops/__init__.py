"""Operations that TensorFlow lacks, or can only compute as several small ones."""

from ipu_keras.ops import all_to_all_op as all_to_all_op
from ipu_keras.ops import cross_replica_ops as cross_replica_ops
from ipu_keras.ops import custom_ops as custom_ops
from ipu_keras.ops import embedding_ops as embedding_ops
from ipu_keras.ops import functional_ops as functional_ops
from ipu_keras.ops import gen_ipu_ops as gen_ipu_ops
from ipu_keras.ops import image_ops as image_ops
from ipu_keras.ops import internal_ops as internal_ops
from ipu_keras.ops import math_ops as math_ops
from ipu_keras.ops import nn_ops as nn_ops
from ipu_keras.ops import normalization_ops as normalization_ops
from ipu_keras.ops import rand_ops as rand_ops
from ipu_keras.ops import reduce_scatter_op as reduce_scatter_op
from ipu_keras.ops import replication_ops as replication_ops
from ipu_keras.ops import rnn_ops as rnn_ops
from ipu_keras.ops import slicing_ops as slicing_ops
from ipu_keras.ops import statistics_ops as statistics_ops
from ipu_keras.ops import summary_ops as summary_ops

"""Wrappers that adapt `tf.compat.v1.train.Optimizer`s to IPUs."""

from ipu_keras.optimizers import cross_replica_optimizer as cross_replica_optimizer
from ipu_keras.optimizers import gradient_accumulation_optimizer as gradient_accumulation_optimizer
from ipu_keras.optimizers import ipu_optimizer as ipu_optimizer
from ipu_keras.optimizers import map_gradient_optimizer as map_gradient_optimizer
from ipu_keras.optimizers import sharded_optimizer as sharded_optimizer
from ipu_keras.optimizers.cross_replica_optimizer import (
    CrossReplicaOptimizer as CrossReplicaOptimizer,
)
from ipu_keras.optimizers.gradient_accumulation_optimizer import (
    CrossReplicaGradientAccumulationOptimizer as CrossReplicaGradientAccumulationOptimizer,
)
from ipu_keras.optimizers.gradient_accumulation_optimizer import (
    CrossReplicaGradientAccumulationOptimizerV2 as CrossReplicaGradientAccumulationOptimizerV2,
)
from ipu_keras.optimizers.gradient_accumulation_optimizer import (
    GradientAccumulationOptimizer as GradientAccumulationOptimizer,
)
from ipu_keras.optimizers.gradient_accumulation_optimizer import (
    GradientAccumulationOptimizerV2 as GradientAccumulationOptimizerV2,
)
from ipu_keras.optimizers.ipu_optimizer import IpuOptimizer as IpuOptimizer
from ipu_keras.optimizers.map_gradient_optimizer import MapGradientOptimizer as MapGradientOptimizer
from ipu_keras.optimizers.sharded_optimizer import ShardedOptimizer as ShardedOptimizer

# Written by `python tests/stub_files.py`.
from ipu_keras.optimizers.sharded_optimizer import ShardedOptimizer as ShardedOptimizer

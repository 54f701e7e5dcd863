# Written by `python tests/stub_files.py`.
from ipu_keras.optimizers.ipu_optimizer import IpuOptimizer as IpuOptimizer

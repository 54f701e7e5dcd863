# Written by `python tests/stub_files.py`.
from ipu_keras.optimizers.map_gradient_optimizer import MapGradientOptimizer as MapGradientOptimizer

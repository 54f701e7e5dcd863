"""Keras optimizers whose state has data types of its own."""

from ipu_addons.keras.optimizers.adam_ipu_optimizer import AdamIpuOptimizer as AdamIpuOptimizer
from ipu_addons.keras.optimizers.lamb_ipu_optimizer import LAMBIpuOptimizer as LAMBIpuOptimizer
from ipu_addons.keras.optimizers.sgd_ipu_optimizer import SGDIpuOptimizer as SGDIpuOptimizer

# Written by `python tests/stub_files.py`.
from ipu_addons.keras.optimizers import AdamIpuOptimizer as AdamIpuOptimizer
from ipu_addons.keras.optimizers import LAMBIpuOptimizer as LAMBIpuOptimizer
from ipu_addons.keras.optimizers import SGDIpuOptimizer as SGDIpuOptimizer

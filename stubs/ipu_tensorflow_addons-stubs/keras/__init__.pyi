# Written by `python tests/stub_files.py`.
from ipu_addons.keras import layers as layers
from ipu_addons.keras import optimizers as optimizers

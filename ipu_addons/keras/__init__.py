"""Layers and optimizers for Keras."""

from ipu_addons.keras import layers as layers
from ipu_addons.keras import optimizers as optimizers

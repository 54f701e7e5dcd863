"""Normalisations under their names in `ipu_tensorflow_addons.keras.layers.normalization`."""

from ipu_keras.keras.layers import GroupNormalization as GroupNormalization
from ipu_keras.keras.layers import InstanceNormalization as InstanceNormalization
from ipu_keras.keras.layers import LayerNormalization as LayerNormalization

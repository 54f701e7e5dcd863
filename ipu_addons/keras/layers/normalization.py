"""Normalisations, where `ipu_tensorflow_addons.keras.layers.normalization` has them."""

from ipu_keras.keras.layers import GroupNormalization as GroupNormalization
from ipu_keras.keras.layers import InstanceNormalization as InstanceNormalization
from ipu_keras.keras.layers import LayerNormalization as LayerNormalization

"""Layers for IPUs, as `ipu_tensorflow_addons.keras.layers` documents them."""

from ipu_keras.keras.layers import Embedding as Embedding

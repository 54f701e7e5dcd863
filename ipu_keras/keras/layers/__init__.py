"""Layers for IPUs, as `tensorflow.python.ipu.keras.layers` documents them."""

from ipu_keras.keras.layers.embedding import Embedding as Embedding

"""Datasets that are made of others."""

from ipu_keras.data.ops import dataset_ops as dataset_ops

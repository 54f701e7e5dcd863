"""Datasets for IPUs, in `ops`."""

from ipu_keras.data import ops as ops

"""Layers and optimizers that upstream documents as `ipu_tensorflow_addons`."""

from ipu_addons import keras as keras
from ipu_addons import v1 as v1

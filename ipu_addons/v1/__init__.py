"""Package that IPU code imports as `ipu_tensorflow_addons.v1`."""

from ipu_addons.v1 import layers as layers

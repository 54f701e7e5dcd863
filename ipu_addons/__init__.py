"""Package that IPU code imports as `ipu_tensorflow_addons`."""

from ipu_addons import keras as keras
from ipu_addons import v1 as v1

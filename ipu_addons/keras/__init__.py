"""What upstream documents as `ipu_tensorflow_addons.keras`."""

from ipu_addons.keras import layers as layers

"""Layers that upstream documents as `ipu_tensorflow_addons.keras.layers`."""

from ipu_addons.keras.layers.effective_transformer import (
    EffectiveTransformer as EffectiveTransformer,
)

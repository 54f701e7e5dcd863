"""Layers and optimizers that upstream documents as `ipu_tensorflow_addons`."""

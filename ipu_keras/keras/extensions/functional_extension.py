"""The extension of Functional models."""

from ipu_keras.keras.extensions.model_extension import ModelExtension


class FunctionalExtension(ModelExtension):
    """What a Functional model made in an `IPUStrategy`'s scope gains."""

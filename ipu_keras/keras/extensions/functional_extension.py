"""The extension of Functional models."""

from ipu_keras.keras.extensions.model_extension import ModelExtension


class FunctionalExtension(ModelExtension):
    """What a Functional model made in an `IPUStrategy`'s scope gains.

    It can be pipelined by calls of layers, also of those in the Functional and Sequential
    models that it calls. The model has all its layers from the beginning.
    """

"""The extension of Functional models."""

from ipu_keras.keras.extensions.model_extension import ModelExtension


class FunctionalExtension(ModelExtension):
    """Extension of a Functional model that is made in an `IPUStrategy`'s scope.

    The model can be pipelined by calls of layers, also by those in the Functional and Sequential
    models that it calls: it has all its layers from the beginning.
    """

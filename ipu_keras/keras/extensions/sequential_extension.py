"""The extension of Sequential models."""

from ipu_keras.keras.extensions.model_extension import ModelExtension


class SequentialExtension(ModelExtension):
    """Extension of a Sequential model that is made in an `IPUStrategy`'s scope.

    The model can be pipelined by layers, where a model in it is one layer, also before it is
    built.
    """

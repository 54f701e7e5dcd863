"""The extension of Sequential models."""

from ipu_keras.keras.extensions.model_extension import ModelExtension


class SequentialExtension(ModelExtension):
    """What a Sequential model made in an `IPUStrategy`'s scope gains.

    It can be pipelined by layers, a model in it being one layer, also before it is built.
    """

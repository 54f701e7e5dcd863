"""A table of vectors for integers, in the memory of the IPU."""

import keras
import tensorflow as tf

from ipu_keras.keras.layers.unsupported_arguments import refuse_unsupported
from ipu_keras.keras.layers.weights import add_weight
from ipu_keras.ops.argument_checks import converted, integer_in, received
from ipu_keras.ops.embedding_lookup import checked_serialization_factor, embedding_lookup
from ipu_keras.settings.arguments import MOST

# Arguments of Keras's layer, with the values that ask for nothing and so may be passed.
_UNSUPPORTED = {
    "embeddings_regularizer": None,
    "embeddings_constraint": None,
    "mask_zero": False,
    "weights": None,
    "input_length": None,
    "lora_rank": None,
    "lora_alpha": None,
    "quantization_config": None,
}


@keras.saving.register_keras_serializable(package="ipu_addons")
class Embedding(keras.Layer):
    """Turns positive integers into dense vectors of a fixed size.

    It replaces typical uses of `keras.layers.Embedding`. The row of an integer that is not in
    the table is zeros. The gradient of the table is dense: an optimizer that keeps moments
    updates those of all rows.

    Args:
        input_dim: Integer. Size of the vocabulary, i.e. maximum integer index + 1.
        output_dim: Integer. Dimension of the dense embedding; it may be 0.
        embeddings_initializer: Initializer for the `embeddings` matrix. Defaults to `"uniform"`.
        serialization_factor: Integer. If greater than 1, the lookup is broken up into so many
            smaller ones, in parts of the table along its first axis. It must divide `input_dim`.
            Only of use if another layer uses the table too: then it can reduce the maximum
            memory at the cost of extra computation. Defaults to `1`.
        **kwargs: Arguments of `keras.Layer`. Those that `keras.layers.Embedding` has besides are
            refused: `embeddings_regularizer`, `embeddings_constraint`, `mask_zero`, `weights`,
            `input_length`, and those of LoRA and quantization.

    Call arguments:
        inputs: Tensor of integers of the shape `(batch_size, input_length)`. Floats are rounded
            towards zero.
        training: Boolean, without effect on the lookup.

    Output shape:
        `(batch_size, input_length, output_dim)`.

    Raises:
        NotImplementedError: An unsupported argument of `keras.layers.Embedding` is given.
        ValueError: A size is too small, or `serialization_factor` does not divide `input_dim`;
            when it is built or called, the inputs have another rank.

    Example:

    >>> layer = Embedding(4, 2, embeddings_initializer="ones", serialization_factor=2)
    >>> print(layer(tf.constant([[0, 3]])).numpy())
    [[[1. 1.]
      [1. 1.]]]
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        embeddings_initializer="uniform",
        serialization_factor=1,
        **kwargs,
    ):
        refuse_unsupported("Embedding", "__init__", kwargs, _UNSUPPORTED)
        for argument in _UNSUPPORTED:
            kwargs.pop(argument, None)
        # With autocast, Keras would cast ids that are floats to the dtype of the computation,
        # and float16 does not hold all integers above 2048.
        super().__init__(**{"autocast": False, **kwargs})
        self.input_dim = _size("input_dim", input_dim, 1)
        self.output_dim = _size("output_dim", output_dim, 0)
        self.embeddings_initializer = converted(
            "embeddings_initializer", keras.initializers.get, embeddings_initializer
        )
        self.serialization_factor = checked_serialization_factor(
            serialization_factor, self.input_dim, "input_dim"
        )

    def build(self, input_shape=None):
        if input_shape is not None and len(input_shape) != 2:
            raise ValueError(
                "`inputs` must have the shape (batch_size, input_length), as the layer has on an "
                "IPU; add an axis, or use `embedding_ops.embedding_lookup`. "
                f"Received: inputs of shape {tuple(input_shape)}"
            )
        self.input_spec = keras.layers.InputSpec(ndim=2)
        self.embeddings = add_weight(
            self,
            "embeddings_initializer",
            self.embeddings_initializer,
            name="embeddings",
            shape=(self.input_dim, self.output_dim),
            trainable=True,
        )
        self.built = True

    def call(self, inputs, training=None):
        ids = tf.convert_to_tensor(inputs)
        if not ids.dtype.is_integer:
            ids = tf.cast(ids, tf.int32)
        rows = embedding_lookup(
            self.embeddings, ids, serialization_factor=self.serialization_factor
        )
        return tf.cast(rows, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.output_dim)

    def get_config(self):
        config = {
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "serialization_factor": self.serialization_factor,
        }
        return {**super().get_config(), **config}


def _size(argument, value, least) -> int:
    size = integer_in(value)
    if size is None or not least <= size <= MOST:
        raise ValueError(
            f"`{argument}` must be an integer of at least {least}, and at most {MOST}. "
            f"Received: {received(argument, value)}"
        )
    return size

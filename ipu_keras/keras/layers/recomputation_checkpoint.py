"""The layer that marks activations which a pipeline stage keeps though it recomputes others."""

import keras

from ipu_keras.pipelining_ops import recomputation_checkpoint


@keras.saving.register_keras_serializable(package="ipu_addons")
class RecomputationCheckpoint(keras.layers.Layer):
    """Has a pipeline stage keep its inputs where activations are recomputed.

    That lowers the peak of memory if too much would have to be recomputed at once. It belongs to
    `RecomputationMode.RecomputeAndBackpropagateInterleaved`, and has no effect with
    `RecomputationMode.RecomputeThenBackpropagate`. The outputs are the inputs.

    Args:
        **kwargs: Further arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: A tensor, or a structure of tensors.
        **kwargs: Accepted and not used.

    Example:

    >>> float(RecomputationCheckpoint()(keras.ops.ones(())))
    1.0
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self._build_at_init()

    def call(self, inputs, **kwargs):
        return recomputation_checkpoint(inputs)

    def compute_output_shape(self, input_shape):
        return input_shape

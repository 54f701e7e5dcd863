"""The promise that replicas have equal values, as a layer."""

import keras

from ipu_keras.ops.argument_checks import check_flag
from ipu_keras.ops.cross_replica_ops import assume_equal_across_replicas


@keras.saving.register_keras_serializable(package="ipu_addons")
class AssumeEqualAcrossReplicas(keras.layers.Layer):
    """Promises that its inputs are equal in all replicas.

    Put it before what decides about a loop or a branch with a collective in it, which hangs an
    IPU if replicas decide differently. The outputs are the inputs.

    Args:
        inplace: Whether an IPU marks the tensors themselves, as slices of others need, or
            copies of them.
        **kwargs: Further arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: A tensor, or a structure of tensors. What happens is undefined if they differ
            between replicas.
        **kwargs: Accepted and not used.

    Example:

    >>> float(AssumeEqualAcrossReplicas()(keras.ops.ones(())))
    1.0
    """

    def __init__(self, inplace=False, **kwargs):
        super().__init__(**kwargs)
        self.inplace = check_flag("inplace", inplace)
        self.supports_masking = True
        self._build_at_init()

    def call(self, inputs, **kwargs):
        return assume_equal_across_replicas(inputs, inplace=self.inplace)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "inplace": self.inplace}

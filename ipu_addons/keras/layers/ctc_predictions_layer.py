"""The best labels of the CTC beam search as a layer."""

import keras

from ipu_addons.keras.layers.ctc_inference_layer import CTCInferenceLayer


@keras.saving.register_keras_serializable(package="ipu_addons")
class CTCPredictionsLayer(CTCInferenceLayer):
    """Finds the most likely labels of each sequence, with blanks after the last.

    The layer does the work of a `CTCInferenceLayer`, and returns the best path only.

    Args:
        blank_index: Integer, the class that means "no label"; negative to count from the
            last. Defaults to 0.
        beam_width: Integer, the sequences of labels that are kept at each step. Defaults
            to 100.
        top_paths: Integer, how many paths the search returns, of which the most likely one
            is taken. Defaults to 1.
        from_logits: Boolean, whether the data are logits, or log probabilities. Defaults to
            `False`.
        **kwargs: Further arguments of `keras.layers.Layer`.

    Call arguments:
        data: Floats of the shape `(max_time, batch, num_classes)`: the time comes first.
        data_length: Integers of the shape `(batch,)`, the number of steps of each.

    Returns:
        The labels, int32 of the shape `(batch, max_time)`.

    Example:

    >>> data = keras.ops.log([[[0.1, 0.9]], [[0.8, 0.2]], [[0.3, 0.7]]])
    >>> print(CTCPredictionsLayer()(data, keras.ops.array([3])).numpy())
    [[1 1 0]]
    """

    def call(self, data, data_length, **kwargs):
        _, lengths, labels = super().call(data, data_length, **kwargs)
        max_time, _, num_classes = data.shape
        is_label = keras.ops.arange(max_time) < lengths[:, :1]
        return keras.ops.where(is_label, labels[:, 0], self.blank_index % num_classes)

    def compute_output_shape(self, data_shape, data_length_shape):
        max_time, batch, _ = data_shape
        return batch, max_time

    def compute_output_spec(self, data, data_length, **kwargs):
        shape = self.compute_output_shape(data.shape, data_length.shape)
        return keras.KerasTensor(shape, "int32")

"""The CTC beam search as a layer."""

import keras

from ipu_keras.keras.call_arguments import refuse_unknown
from ipu_keras.ops.argument_checks import check_flag, check_integer
from ipu_keras.ops.ctc_decoder import checked_widths
from ipu_keras.ops.ctc_inputs import blank_class
from ipu_keras.ops.nn_ops import ctc_beam_search_decoder, ctc_beam_search_decoder_with_log_probs


@keras.saving.register_keras_serializable(package="ipu_addons")
class CTCInferenceLayer(keras.layers.Layer):
    """Finds the most likely labels of sequences by a beam search.

    See `ipu.nn_ops.ctc_beam_search_decoder` for the search, which has no gradient.

    Args:
        blank_index: Integer, the class that means "no label"; negative to count from the
            last. Defaults to 0.
        beam_width: Integer, the sequences of labels that are kept at each step. Defaults
            to 100.
        top_paths: Integer, the sequences that are returned; at most `beam_width`. Defaults
            to 1.
        from_logits: Boolean, whether the data are logits, or log probabilities. Defaults to
            `False`.
        **kwargs: Further arguments of `keras.layers.Layer`.

    Call arguments:
        data: Floats of the shape `(max_time, batch, num_classes)`: the time comes first.
        data_length: Integers of the shape `(batch,)`, the number of steps of each.

    Returns:
        Three tensors, each from the most to the least likely:

        - Log probabilities, `(batch, top_paths)`, at most 0; the document of the interface calls
          them negative log probabilities.
        - The numbers of labels, `(batch, top_paths)`.
        - The labels, `(batch, top_paths, max_time)`, with -1 after the last.

    Example:

    >>> data = keras.ops.log([[[0.1, 0.9]], [[0.8, 0.2]], [[0.3, 0.7]]])
    >>> scores, lengths, labels = CTCInferenceLayer(beam_width=4)(data, keras.ops.array([3]))
    >>> print(lengths.numpy(), labels.numpy())
    [[2]] [[[ 1  1 -1]]]
    """

    def __init__(self, blank_index=0, beam_width=100, top_paths=1, from_logits=False, **kwargs):
        super().__init__(**kwargs)
        self.blank_index = check_integer("blank_index", blank_index)
        self.beam_width, self.top_paths = checked_widths(beam_width, top_paths)
        self.from_logits = check_flag("from_logits", from_logits)

    def build(self, data_shape, data_length_shape):
        blank_class(self.blank_index, data_shape[-1])
        self.built = True

    def call(self, data, data_length, **kwargs):
        refuse_unknown(type(self).__name__, kwargs)
        search = (
            ctc_beam_search_decoder if self.from_logits else ctc_beam_search_decoder_with_log_probs
        )
        return search(data, data_length, self.beam_width, self.top_paths, self.blank_index)

    def compute_output_shape(self, data_shape, data_length_shape):
        max_time, batch, _ = data_shape
        found = (batch, self.top_paths)
        return found, found, (*found, max_time)

    # Keras would give all outputs the layer's floating point type.
    def compute_output_spec(self, data, data_length, **kwargs):
        scores, lengths, labels = self.compute_output_shape(data.shape, data_length.shape)
        return (
            keras.KerasTensor(scores, self.compute_dtype),
            keras.KerasTensor(lengths, "int32"),
            keras.KerasTensor(labels, "int32"),
        )

    def get_config(self):
        base_config = super().get_config()
        config = {
            "blank_index": self.blank_index,
            "beam_width": self.beam_width,
            "top_paths": self.top_paths,
            "from_logits": self.from_logits,
        }
        return {**base_config, **config}

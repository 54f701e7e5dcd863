"""The CTC loss as a layer, as losses of Keras have no place for lengths."""

import keras

from ipu_keras.keras.call_arguments import refuse_unknown
from ipu_keras.ops.argument_checks import check_flag, check_integer
from ipu_keras.ops.ctc_inputs import blank_class
from ipu_keras.ops.nn_ops import ctc_loss_v2, ctc_loss_with_log_probs


@keras.saving.register_keras_serializable(package="ipu_addons")
class CTCLoss(keras.layers.Layer):
    """The CTC loss: how unlikely labels are of which only the order in a sequence is known.

    It is the last layer of a model whose inputs have the labels too; the model's loss is what
    the layer returns. See `ipu.nn_ops.ctc_loss_v2` for the formula.

    Args:
        blank_index: Integer, the class that means "no label"; negative to count from the last.
            Defaults to 0.
        from_logits: Boolean, whether the data are logits, or log probabilities. Defaults to
            `False`.
        **kwargs: Further arguments of `keras.layers.Layer`.

    Call arguments:
        labels: Integers of the shape `(batch, max_label_length)`.
        data: Floats of the shape `(max_time, batch, num_classes)`: the time comes first.
        label_length: Integers of the shape `(batch,)`, the number of labels of each.
        data_length: Integers of the shape `(batch,)`, the number of steps of each.

    Returns:
        The losses, `(batch,)`; `inf` for labels that are not possible.

    Example:

    >>> labels = keras.Input((2,), batch_size=4, dtype="int32")
    >>> steps = keras.Input((6, 3), batch_size=4)
    >>> label_length = keras.Input((), batch_size=4, dtype="int32")
    >>> data_length = keras.Input((), batch_size=4, dtype="int32")
    >>> logits = keras.ops.transpose(keras.layers.Dense(5)(steps), (1, 0, 2))
    >>> loss = CTCLoss(from_logits=True)(labels, logits, label_length, data_length)
    >>> model = keras.Model((labels, steps, label_length, data_length), loss)
    >>> model.compile("sgd", loss=lambda _, loss: loss)
    >>> model.output_shape
    (4,)
    """

    def __init__(self, blank_index=0, from_logits=False, **kwargs):
        super().__init__(**kwargs)
        self.blank_index = check_integer("blank_index", blank_index)
        self.from_logits = check_flag("from_logits", from_logits)

    def build(self, labels_shape, data_shape, label_length_shape, data_length_shape):
        blank_class(self.blank_index, data_shape[-1])
        self.built = True

    def call(self, labels, data, label_length, data_length, **kwargs):
        refuse_unknown("CTCLoss", kwargs)
        loss = ctc_loss_v2 if self.from_logits else ctc_loss_with_log_probs
        return loss(labels, data, label_length, data_length, self.blank_index)

    def compute_output_shape(self, labels_shape, data_shape, label_length_shape, data_length_shape):
        return (data_shape[1],)

    def get_config(self):
        base_config = super().get_config()
        config = {"blank_index": self.blank_index, "from_logits": self.from_logits}
        return {**base_config, **config}

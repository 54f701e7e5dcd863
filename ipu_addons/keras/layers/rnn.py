"""Popnn's LSTM and GRU, with a `call` that takes the mask before the other arguments.

Upstream changed their order, which `ipu_keras.keras.layers` has, when the layers moved to the
addons.
"""

import keras

from ipu_keras.keras import layers
from ipu_keras.keras.layers.unsupported_arguments import REFUSAL_OF_ADDONS

# Users match either sentence, as the layers have moved from one package to the other.
_REFUSAL = f"{layers.PopnnLSTM._refusal} {REFUSAL_OF_ADDONS}"


@keras.saving.register_keras_serializable(package="ipu_addons")
class PopnnLSTM(layers.PopnnLSTM):
    __doc__ = layers.PopnnLSTM.__doc__
    _refusal = _REFUSAL

    def call(  # type: ignore[override]
        self, inputs, mask=None, training=None, initial_state=None
    ):
        return super().call(inputs, training=training, initial_state=initial_state, mask=mask)


@keras.saving.register_keras_serializable(package="ipu_addons")
class PopnnGRU(layers.PopnnGRU):
    __doc__ = layers.PopnnGRU.__doc__
    _refusal = _REFUSAL

    def call(  # type: ignore[override]
        self, inputs, mask=None, training=None, initial_state=None
    ):
        return super().call(inputs, training=training, initial_state=initial_state, mask=mask)


LSTM = PopnnLSTM
GRU = PopnnGRU

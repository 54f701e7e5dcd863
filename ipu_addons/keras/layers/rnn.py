"""Popnn's LSTM and GRU, whose `call` takes the mask before what `ipu_keras.keras.layers` has.

Upstream changed the order of these arguments when the layers moved to the addons.
"""

import keras

from ipu_keras.keras import layers
from ipu_keras.keras.layers.unsupported_arguments import REFUSAL_OF_ADDONS

# Both are looked for, as the layers have moved.
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

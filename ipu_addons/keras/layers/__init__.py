"""Layers that IPU code imports from `ipu_tensorflow_addons.keras.layers`."""

from ipu_addons.keras.layers.assume_equal_across_replicas import (
    AssumeEqualAcrossReplicas as AssumeEqualAcrossReplicas,
)
from ipu_addons.keras.layers.ctc_inference_layer import CTCInferenceLayer as CTCInferenceLayer
from ipu_addons.keras.layers.ctc_predictions_layer import CTCPredictionsLayer as CTCPredictionsLayer
from ipu_addons.keras.layers.effective_transformer import (
    EffectiveTransformer as EffectiveTransformer,
)
from ipu_addons.keras.layers.rnn import GRU as GRU
from ipu_addons.keras.layers.rnn import LSTM as LSTM
from ipu_addons.keras.layers.rnn import PopnnGRU as PopnnGRU
from ipu_addons.keras.layers.rnn import PopnnLSTM as PopnnLSTM
from ipu_addons.keras.layers.serial_dense import SerialDense as SerialDense
from ipu_keras.keras.layers import Dropout as Dropout
from ipu_keras.keras.layers import Embedding as Embedding
from ipu_keras.keras.layers import GroupNormalization as GroupNormalization
from ipu_keras.keras.layers import InstanceNormalization as InstanceNormalization
from ipu_keras.keras.layers import LayerNormalization as LayerNormalization
from ipu_keras.keras.layers import RecomputationCheckpoint as RecomputationCheckpoint
from ipu_keras.keras.layers.group_normalization import GroupNorm as GroupNorm
from ipu_keras.keras.layers.instance_normalization import InstanceNorm as InstanceNorm
from ipu_keras.keras.layers.layer_normalization import LayerNorm as LayerNorm
from ipu_keras.keras.losses import CTCLoss as CTCLoss

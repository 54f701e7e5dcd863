"""Keras layers of operations that IPUs are good at."""

from ipu_addons.keras.layers.ctc_inference_layer import CTCInferenceLayer as CTCInferenceLayer
from ipu_addons.keras.layers.ctc_predictions_layer import CTCPredictionsLayer as CTCPredictionsLayer
from ipu_keras.keras.losses import CTCLoss as CTCLoss

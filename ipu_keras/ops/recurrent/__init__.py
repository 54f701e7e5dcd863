"""Recurrent layers over whole sequences.

The part of a step that does not depend on the step before, and all of the gradient but the
state's own, is computed for all steps at once.
"""

from ipu_keras.ops.recurrent.gru_sequence import gru as gru
from ipu_keras.ops.recurrent.gru_sequence import gru_inference as gru_inference
from ipu_keras.ops.recurrent.lstm_sequence import lstm as lstm
from ipu_keras.ops.recurrent.lstm_sequence import lstm_inference as lstm_inference

# Written by `python tests/stub_files.py`.
from ipu_keras.ops.nn_ops import ctc_beam_search_decoder as ctc_beam_search_decoder
from ipu_keras.ops.nn_ops import ctc_beam_search_decoder_with_log_probs as ctc_beam_search_decoder_with_log_probs
from ipu_keras.ops.nn_ops import ctc_loss as ctc_loss
from ipu_keras.ops.nn_ops import ctc_loss_v2 as ctc_loss_v2
from ipu_keras.ops.nn_ops import ctc_loss_with_log_probs as ctc_loss_with_log_probs
from ipu_keras.ops.nn_ops import ctc_loss_with_logits as ctc_loss_with_logits
from ipu_keras.ops.nn_ops import gelu as gelu
from ipu_keras.ops.nn_ops import hard_sigmoid as hard_sigmoid
from ipu_keras.ops.nn_ops import multi_conv as multi_conv
from ipu_keras.ops.nn_ops import nce_loss as nce_loss
from ipu_keras.ops.nn_ops import sampled_softmax_loss as sampled_softmax_loss
from ipu_keras.ops.nn_ops import swish as swish

"""The documented names of `ipu.nn_ops` and `ipu.ops.nn_ops`."""

from ipu_keras.ops.ctc_decoder import ctc_beam_search_decoder as ctc_beam_search_decoder
from ipu_keras.ops.ctc_decoder import (
    ctc_beam_search_decoder_with_log_probs as ctc_beam_search_decoder_with_log_probs,
)
from ipu_keras.ops.ctc_loss import ctc_loss as ctc_loss
from ipu_keras.ops.ctc_loss import ctc_loss_v2 as ctc_loss_v2
from ipu_keras.ops.ctc_loss import ctc_loss_with_log_probs as ctc_loss_with_log_probs
from ipu_keras.ops.ctc_loss import ctc_loss_with_logits as ctc_loss_with_logits
from ipu_keras.ops.multi_convolution import multi_conv as multi_conv
from ipu_keras.ops.nonlinearities import gelu as gelu
from ipu_keras.ops.nonlinearities import hard_sigmoid as hard_sigmoid
from ipu_keras.ops.nonlinearities import swish as swish
from ipu_keras.ops.sampled_losses import nce_loss as nce_loss
from ipu_keras.ops.sampled_losses import sampled_softmax_loss as sampled_softmax_loss

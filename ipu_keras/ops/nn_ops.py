"""Operations of neural networks, as `ipu.nn_ops` and `ipu.ops.nn_ops`."""

from ipu_keras.ops.multi_convolution import multi_conv as multi_conv
from ipu_keras.ops.nonlinearities import gelu as gelu
from ipu_keras.ops.nonlinearities import hard_sigmoid as hard_sigmoid
from ipu_keras.ops.nonlinearities import swish as swish
from ipu_keras.ops.sampled_losses import nce_loss as nce_loss
from ipu_keras.ops.sampled_losses import sampled_softmax_loss as sampled_softmax_loss

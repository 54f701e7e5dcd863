"""Package that older IPU code imports as `tensorflow.python.ipu.keras.losses`."""

from ipu_keras.keras.losses.ctc_loss import CTCLoss as CTCLoss

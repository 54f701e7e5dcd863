"""What older IPU code finds as `tensorflow.python.ipu.keras.losses`."""

from ipu_keras.keras.losses.ctc_loss import CTCLoss as CTCLoss

# Written by `python tests/stub_files.py`.
from ipu_keras.keras.losses import CTCLoss as CTCLoss

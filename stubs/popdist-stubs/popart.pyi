# Written by `python tests/stub_files.py`.
from ipu_keras.popdist.popart import configureSessionOptions as configureSessionOptions
from ipu_keras.popdist.popart import getDevice as getDevice

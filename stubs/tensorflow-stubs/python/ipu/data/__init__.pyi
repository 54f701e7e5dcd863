# Written by `python tests/stub_files.py`.
from ipu_keras.data import ops as ops

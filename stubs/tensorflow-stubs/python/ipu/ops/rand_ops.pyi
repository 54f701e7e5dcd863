# Written by `python tests/stub_files.py`.
from ipu_keras.ops.rand_ops import dropout as dropout

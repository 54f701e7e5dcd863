# Written by `python tests/stub_files.py`.
from ipu_keras.ops.math_ops import serialized_matmul as serialized_matmul

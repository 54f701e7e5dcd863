# Written by `python tests/stub_files.py`.
from ipu_keras.ops.normalization_ops import group_norm as group_norm
from ipu_keras.ops.normalization_ops import instance_norm as instance_norm
from ipu_keras.ops.normalization_ops import layer_norm as layer_norm

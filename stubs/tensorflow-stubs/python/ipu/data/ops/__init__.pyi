# Written by `python tests/stub_files.py`.
from ipu_keras.data.ops import dataset_ops as dataset_ops

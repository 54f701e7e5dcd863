# Written by `python tests/stub_files.py`.
from ipu_keras.data.ops.dataset_ops import BufferDataset as BufferDataset

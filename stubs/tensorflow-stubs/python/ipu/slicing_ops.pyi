# Written by `python tests/stub_files.py`.
from ipu_keras.ops.slicing_ops import sequence_slice as sequence_slice
from ipu_keras.ops.slicing_ops import sequence_slice_pack as sequence_slice_pack
from ipu_keras.ops.slicing_ops import sequence_slice_unpack as sequence_slice_unpack

# Written by `python tests/stub_files.py`.
from ipu_keras.ops.reduce_scatter_op import reduce_scatter as reduce_scatter

# Written by `python tests/stub_files.py`.
from ipu_keras.ops.replication_ops import replication_index as replication_index

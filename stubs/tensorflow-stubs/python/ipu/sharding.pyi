# Written by `python tests/stub_files.py`.
from ipu_keras.sharding import assign_shard as assign_shard
from ipu_keras.sharding import dependencies as dependencies
from ipu_keras.sharding import get_shard_from_colocation as get_shard_from_colocation
from ipu_keras.sharding import has_attr as has_attr
from ipu_keras.sharding import propagate_sharding as propagate_sharding
from ipu_keras.sharding import shard_of as shard_of
from ipu_keras.sharding import sharded as sharded

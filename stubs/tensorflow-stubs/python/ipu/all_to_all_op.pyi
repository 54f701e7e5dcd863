# Written by `python tests/stub_files.py`.
from ipu_keras.ops.all_to_all_op import all_gather as all_gather
from ipu_keras.ops.all_to_all_op import all_to_all as all_to_all

# Written by `python tests/stub_files.py`.
from ipu_addons.v1 import layers as layers

# Written by `python tests/stub_files.py`.
from ipu_addons import keras as keras
from ipu_addons import v1 as v1

# Written by `python tests/stub_files.py`.
from ipu_keras.ipu_compiler import compile as compile

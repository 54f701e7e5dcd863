# Written by `python tests/stub_files.py`.
from ipu_keras.popart.writer import NetWriter as NetWriter

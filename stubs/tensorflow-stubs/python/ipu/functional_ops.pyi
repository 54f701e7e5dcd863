# Written by `python tests/stub_files.py`.
from ipu_keras.ops.functional_ops import outlined_function as outlined_function

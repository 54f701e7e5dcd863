# Written by `python tests/stub_files.py`.
from ipu_keras.ipu_run_config import IPURunConfig as IPURunConfig
from ipu_keras.ipu_run_config import RunConfig as RunConfig

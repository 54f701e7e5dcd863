# Written by `python tests/stub_files.py`.
from ipu_keras.ipu_multi_worker_strategy import HostVariables as HostVariables
from ipu_keras.ipu_multi_worker_strategy import IPUMultiWorkerStrategy as IPUMultiWorkerStrategy

# Written by `python tests/stub_files.py`.
from ipu_keras.dataset_benchmark import dataset_benchmark as dataset_benchmark
from ipu_keras.dataset_benchmark import dataset_of as dataset_of
from ipu_keras.dataset_benchmark import infeed_benchmark as infeed_benchmark

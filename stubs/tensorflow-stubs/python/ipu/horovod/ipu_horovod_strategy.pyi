# Written by `python tests/stub_files.py`.
from ipu_keras.horovod.ipu_horovod_strategy import IPUHorovodStrategy as IPUHorovodStrategy
from ipu_keras.horovod.ipu_horovod_strategy import IPUHorovodStrategyV1 as IPUHorovodStrategyV1

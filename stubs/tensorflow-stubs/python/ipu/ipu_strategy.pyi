# Written by `python tests/stub_files.py`.
from ipu_keras.ipu_strategy import IPUExtended as IPUExtended
from ipu_keras.ipu_strategy import IPUStrategy as IPUStrategy
from ipu_keras.ipu_strategy import IPUStrategyV1 as IPUStrategyV1
from ipu_keras.ipu_strategy import StrategyScope as StrategyScope
from ipu_keras.ipu_strategy import current_ipu_strategy as current_ipu_strategy

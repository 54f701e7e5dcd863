# Written by `python tests/stub_files.py`.
from ipu_keras.keras.layers import Dropout as Dropout
from ipu_keras.keras.layers import Embedding as Embedding
from ipu_keras.keras.layers import GRU as GRU
from ipu_keras.keras.layers import GroupNormalization as GroupNormalization
from ipu_keras.keras.layers import InstanceNormalization as InstanceNormalization
from ipu_keras.keras.layers import LSTM as LSTM
from ipu_keras.keras.layers import LayerNormalization as LayerNormalization
from ipu_keras.keras.layers import PopnnGRU as PopnnGRU
from ipu_keras.keras.layers import PopnnLSTM as PopnnLSTM
from ipu_keras.keras.layers import RecomputationCheckpoint as RecomputationCheckpoint

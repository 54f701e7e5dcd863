# Written by `python tests/stub_files.py`.
from ipu_addons.v1.layers import PopnnAUGRU as PopnnAUGRU
from ipu_addons.v1.layers import PopnnDynamicGRU as PopnnDynamicGRU
from ipu_addons.v1.layers import PopnnDynamicLSTM as PopnnDynamicLSTM
from ipu_addons.v1.layers import PopnnGRU as PopnnGRU
from ipu_addons.v1.layers import PopnnLSTM as PopnnLSTM

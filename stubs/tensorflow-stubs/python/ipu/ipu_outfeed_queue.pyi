# Written by `python tests/stub_files.py`.
from ipu_keras.ipu_outfeed_queue import IPUOutfeedMode as IPUOutfeedMode
from ipu_keras.ipu_outfeed_queue import IPUOutfeedQueue as IPUOutfeedQueue

# Written by `python tests/stub_files.py`.
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue as IPUInfeedQueue
from ipu_keras.ipu_infeed_queue import check_infeed as check_infeed
from ipu_keras.ipu_infeed_queue import checked_ordinal as checked_ordinal
from ipu_keras.ipu_infeed_queue import unused_feed_name as unused_feed_name

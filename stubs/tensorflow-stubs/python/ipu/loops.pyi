# Written by `python tests/stub_files.py`.
from ipu_keras.loops import repeat as repeat
from ipu_keras.loops import while_loop as while_loop

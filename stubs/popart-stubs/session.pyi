# Written by `python tests/stub_files.py`.
from ipu_keras.popart.session import InferenceSession as InferenceSession
from ipu_keras.popart.session import OutOfMemoryException as OutOfMemoryException
from ipu_keras.popart.session import TrainingSession as TrainingSession
from ipu_keras.popart.session import makedirsAndCheckWritable as makedirsAndCheckWritable

# Written by `python tests/stub_files.py`.
from ipu_keras.ops.image_ops import normalise_image as normalise_image

"""What tests of the ONNX door need."""

import sys

from ipu_keras import popart

# pytest names test modules after their folders, and makes an empty `popart` of this one.
sys.modules["popart"] = popart

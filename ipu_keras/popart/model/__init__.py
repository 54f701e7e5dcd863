"""ONNX models as frozen values, and their tensors; what operations mean is left to `operations`."""

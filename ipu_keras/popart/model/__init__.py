"""Reads, checks and writes ONNX models; what their operations mean is left to `operations`."""

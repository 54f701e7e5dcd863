"""ONNX models as this package reads and writes them."""

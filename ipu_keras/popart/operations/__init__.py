"""The operations of ONNX models, and how graphs of them are computed."""

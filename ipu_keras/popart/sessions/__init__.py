"""How ONNX models run: what goes in and out, weights, programs and their reports."""

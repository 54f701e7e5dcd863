"""Sessions that run ONNX models: their inputs and results, weights, programs and reports."""

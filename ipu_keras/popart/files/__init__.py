"""Reads, checks, changes and writes files of ONNX models, which may come from anybody."""

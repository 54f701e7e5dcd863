"""PopART: builds, runs and trains ONNX models, as `import popart`."""

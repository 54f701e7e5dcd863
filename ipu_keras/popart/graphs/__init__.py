"""ONNX graphs while users build them: names, scopes, attributes, types, and opset methods."""

"""ONNX graphs while users build them: names and scopes, attributes, types, and opset methods."""

"""Programs of TensorFlow functions, which TensorFlow dispatches."""

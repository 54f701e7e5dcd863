"""What is changed in TensorFlow."""

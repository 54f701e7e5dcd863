"""What is changed in Keras."""

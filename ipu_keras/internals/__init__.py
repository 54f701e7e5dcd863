"""Every private name of TensorFlow and Keras that the package uses, each with its form."""

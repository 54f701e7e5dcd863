"""Private names of TensorFlow, by theme: what the package gets from each, and its form."""

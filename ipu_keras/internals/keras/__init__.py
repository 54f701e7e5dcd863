"""Private names of Keras, by theme: what the package gets from each, and its form."""

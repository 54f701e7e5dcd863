"""The commands of `ipu-keras`, a module each with a function `run`, which returns the exit code."""

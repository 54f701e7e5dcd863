"""The commands of `ipu-keras`: modules with a function `run`, which returns the exit code."""

"""The pytest plugin and the command `ipu-keras`, which start without TensorFlow.

Importing any module of `ipu_keras` imports TensorFlow first, which takes seconds. Whoever runs
pytest, or asks a command for help, does not always need it: what is needed by then is here, and
the rest is imported when a test or a command asks for it.
"""

"""The pytest plugin and the command `ipu-keras`, which start without TensorFlow.

Importing any module of `ipu_keras` imports TensorFlow first, which takes seconds, but for what
`light_rooms` does. Whoever runs pytest, or asks a command for help, does not always need it.
Modules here that have to start at once import neither; the others are imported when a test or a
command asks for them.
"""

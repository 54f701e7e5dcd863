"""Prepares the trace of a step for XLA."""

import contextlib
from collections.abc import Iterator

from ipu_keras.internals.tensorflow.xla import control_flow_context


@contextlib.contextmanager
def traced_for_xla() -> Iterator[None]:
    """While this is open, graphs that are built are such that XLA can compile them.

    TensorFlow's gradient of a loop asks whether it will be compiled, and only then gives its
    stacks a constant size, without which XLA refuses them. `tf.function(jit_compile=True)`
    answers through this control flow context; here the traced function is compiled as a part of
    another.
    """
    context = control_flow_context()
    context.Enter()
    try:
        yield
    finally:
        context.Exit()

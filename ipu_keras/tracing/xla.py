"""What a step needs while it is traced so that XLA can compile it."""

import contextlib
from collections.abc import Iterator

from ipu_keras.internals.tensorflow.xla import control_flow_context


@contextlib.contextmanager
def traced_for_xla() -> Iterator[None]:
    """While a graph is built, makes it one that XLA can compile.

    TensorFlow's gradient of a loop asks whether it will be compiled, and only
    then gives its stacks a constant size, without which XLA refuses them.
    `tf.function(jit_compile=True)` answers through this control flow context;
    here the traced function is compiled as a part of another.
    """
    context = control_flow_context()
    context.Enter()
    try:
        yield
    finally:
        context.Exit()

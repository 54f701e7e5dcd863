"""Broadcasts two tensors as ONNX did before version 7: only if the node asks for it."""

from typing import Any

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.sizes import axis_within, sizes_of


def aligned(a: Any, b: Any, axis: int | None, broadcast: int) -> Any:
    """Reshapes `b` so that it broadcasts to the shape of `a` as NumPy does.

    `axis` is the axis of `a` that the first axis of `b` meets; `None` aligns the last axes. Without
    `broadcast`, both must have one shape.
    """
    if not broadcast:
        if not a.shape.is_compatible_with(b.shape):
            raise popart_exception(
                "Both inputs must have one shape, as the attribute `broadcast` is 0. Received: "
                f"{a.shape} and {b.shape}. Set `broadcast` to 1, or use an opset from 7 on, "
                "which always broadcasts."
            )
        return b
    if axis is None:
        return b
    behind = a.shape.rank - axis_within(axis, a.shape.rank) - b.shape.rank
    if behind < 0:
        raise popart_exception(
            f"The second input, of shape {b.shape}, does not fit into {a.shape} from the "
            f"attribute `axis` on. Received: axis={axis}"
        )
    return tf.reshape(b, [*sizes_of(b), *[1] * behind])

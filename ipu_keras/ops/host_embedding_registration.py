"""Whether a table on the host may be looked up: the connection that hardware would have to it.

It is a variable, which exists while the table is registered. So each session has its own, a
program that looks the table up finds out when it runs, with XLA or without, and TensorFlow's
error of a missing variable, which names it, is the documented one.
"""

import tensorflow as tf

from ipu_keras.internals.tensorflow.variables import set_contents

# Tables, their connections and optimizers' variables stay here, whatever device a strategy's
# scope has for variables.
HOST = "/device:CPU:0"


def connect(name: str) -> tf.Operation | None:
    """Returns the operation that lets a table be looked up; None in eager mode, where it has
    run."""
    with tf.device(HOST):
        return tf.raw_ops.AssignVariableOp(resource=_handle(name), value=tf.constant(0))


def disconnect(name: str) -> tf.Operation | None:
    """Returns the operation that ends the lookups of a table; None in eager mode, where it has
    run."""
    with tf.device(HOST):
        return tf.raw_ops.DestroyResourceOp(resource=_handle(name), ignore_lookup_error=True)


def is_connected(name: str) -> tf.Tensor:
    """Whether a table may be looked up, as a scalar of bool."""
    with tf.device(HOST):
        return tf.raw_ops.VarIsInitializedOp(resource=_handle(name))


def connection(name: str) -> tf.Tensor:
    """Returns an int32 zero if the table may be looked up when this runs, or raises there."""
    # Made outside of the function that is traced, as XLA cannot compile the making of a handle.
    with tf.init_scope(), tf.device(HOST):
        handle = _handle(name)
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int32)


def _handle(name: str) -> tf.Tensor:
    shared_name = (
        f"Host embedding interface with id='{name}' not registered. Did you run the "
        "associated host_embedding op in the session? Run the program within "
        "`with embedding.register(session)`; without sessions, within `with embedding.register()`"
    )
    handle = tf.raw_ops.VarHandleOp(dtype=tf.int32, shape=[], shared_name=shared_name)
    # TensorFlow's own variables set this on their handles, and lowering a function reads it.
    set_contents(handle, tf.TensorShape([]), tf.int32)
    return handle

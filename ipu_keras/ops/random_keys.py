"""Keys of random numbers that differ from draw to draw, and from replica to replica."""

import threading

import tensorflow as tf


def fresh_key() -> tf.Tensor:
    """Returns a key, a uint64 tensor `(1,)`, that nothing else was drawn from.

    Each execution of a program draws another one, and so does each of its replicas, unless these
    were told to draw alike. `seed_keys` starts the keys anew.

    Example:

    >>> seed_keys(5)
    >>> first, second = int(fresh_key()[0]), int(fresh_key()[0])
    >>> seed_keys(5)
    >>> first == second, first == int(fresh_key()[0])
    (False, True)
    """
    if tf.compat.v1.executing_eagerly_outside_functions():
        # The state of a generator is a variable, of which each replica has its own. TensorFlow's
        # stateful operations would draw the same numbers in all replicas once they are seeded.
        bits = _generator().make_seeds(1)[:1, 0]
    else:
        # A session cannot reach that variable.
        bits = tf.random.uniform([1], tf.int64.min, tf.int64.max, tf.int64)
    return tf.bitcast(bits, tf.uint64)


def seed_keys(seed: int) -> None:
    """Starts the keys anew from a seed, also those of programs that are compiled already."""
    _generator().reset_from_seed(seed)


def _generator() -> tf.random.Generator:
    """Returns TensorFlow's global generator, whose state is on the host.

    A program on one IPU device can reach the host, but no other IPU device. In the scope of a
    strategy, variables are made on its device; a thread of its own is in no scope.
    """
    found = []

    def get():
        with tf.device("/device:CPU:0"):
            found.append(tf.random.get_global_generator())

    thread = threading.Thread(target=get)
    thread.start()
    thread.join()
    return found[0]

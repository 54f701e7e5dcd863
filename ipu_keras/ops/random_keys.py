"""Keys of random numbers that differ from draw to draw, and from replica to replica."""

import threading

import tensorflow as tf

from ipu_keras.device import DRIVER
from ipu_keras.device.traced_for import device_of_trace
from ipu_keras.runtime.engine import Engine


def fresh_key() -> tf.Tensor:
    """Returns a key, a uint64 tensor `(1,)`, that nothing else was drawn from.

    Each execution of a program draws another one, and so does each of its replicas, unless these
    were told to draw alike. `seed_keys` starts the keys of a device anew; what is not traced for a
    device has those of the first.

    Example:

    >>> engine = DRIVER.known_device(0).engine
    >>> seed_keys(engine, 5)
    >>> first, second = int(fresh_key()[0]), int(fresh_key()[0])
    >>> seed_keys(engine, 5)
    >>> first == second, first == int(fresh_key()[0])
    (False, True)
    """
    if tf.compat.v1.executing_eagerly_outside_functions():
        # The state of a generator is a variable, of which each replica has its own. TensorFlow's
        # stateful operations would draw the same numbers in all replicas once they are seeded.
        device = device_of_trace() or DRIVER.known_device(0)
        bits = _generator(device.engine).make_seeds(1)[:1, 0]
    else:
        # A session cannot reach that variable.
        bits = tf.random.uniform([1], tf.int64.min, tf.int64.max, tf.int64)
    return tf.bitcast(bits, tf.uint64)


def seed_keys(engine: Engine, seed: int) -> None:
    """Starts a device's keys anew, also those of programs that are compiled already."""
    _generator(engine).reset_from_seed(seed)


def _generator(engine: Engine) -> tf.random.Generator:
    """Returns the generator of a device's keys, whose state is on the host.

    A program on one IPU device can reach the host, but no other IPU device. In the scope of a
    strategy, variables are made on its device; a thread of its own is in no scope.
    """

    def make():
        with tf.device("/device:CPU:0"):
            engine.key_generator = tf.random.Generator.from_non_deterministic_state()

    with engine.making_keys:
        if engine.key_generator is None:
            thread = threading.Thread(target=make)
            thread.start()
            thread.join()
    return engine.key_generator

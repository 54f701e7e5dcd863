"""Random numbers that `reset_ipu_seed` starts anew in programs that exist already.

TensorFlow's operations keep where they are in kernels, which nothing can reach. In what is traced
for a device they draw the same numbers from variables, which sessions and eager code can write.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.device.traced_for import device_of_trace
from ipu_keras.functions.place import outermost_graph
from ipu_keras.hooks.tensorflow.drawn_numbers import replace_draws
from ipu_keras.internals.tensorflow.functions import is_trace
from ipu_keras.internals.tensorflow.operations import num_counted_seeds
from ipu_keras.internals.tensorflow.variables import plain_variable
from ipu_keras.runtime.engine import Engine

# The attribute of a graph that holds its streams, which no collection can: checkpoints have those.
_STREAMS = "_ipu_random_streams"
# What a session has the streams as that it has started.
_STARTED = "_ipu_started_streams"
# `tf.random.Algorithm.PHILOX`, of which TensorFlow's kernels draw.
_PHILOX = 1
# TensorFlow takes seeds modulo this.
_SEEDS = 2**31 - 1
# What replicas find streams of random numbers by.
_NAME = "StateVar"


@dataclass(frozen=True, eq=False)
class _Stream:
    """Where one operation of a program draws its numbers.

    Args:
        variable: Philox's counter of two words, and its key.
        engine: The engine of the device that the program runs on.
        seeds: The two seeds of the operation, as TensorFlow has them; both zero if it has none.
        is_seeded: Whether the second of them is one that a user gave.
        number: The number of the operation among those of its graph that draw.
        num_seedings: How often the device had been seeded when the operation was traced.
    """

    variable: Any
    engine: Engine
    seeds: tuple[int, int]
    is_seeded: bool
    number: int
    num_seedings: int

    def start(self) -> list[int]:
        """What the variable holds before the first draw, since the device was seeded last."""
        seed, stream = self.seeds
        if self._starts_from_device():
            # TensorFlow's counts are there only if its seed was set when this was traced.
            stream = stream if self.is_seeded else self.number
            assert self.engine.seed is not None
            seed = self.engine.seed
        elif not (seed or stream):
            seed, stream = secrets.randbits(63), secrets.randbits(63)
        return [0, _signed(stream), _signed(seed)]

    def _starts_from_device(self) -> bool:
        if self.engine.seed is None:
            return False
        # Seeding a device sets TensorFlow's seed, which a user may have set to another one since.
        has_no_other = self.seeds == (0, 0) or self.seeds[0] == self.engine.seed % _SEEDS
        return has_no_other or self.engine.num_seedings > self.num_seedings


def serve_draws() -> None:
    """Has what is traced for an IPU draw random numbers from streams that can start anew."""
    replace_draws(_DRAWS, _is_replaced, _draw)


def restart_functions(engine: Engine) -> None:
    """Starts the streams of functions anew, as their device was seeded."""
    for stream in engine.streams:
        stream.variable.assign(stream.start())


def start_in_session(session: tf.compat.v1.Session) -> None:
    """Starts the streams of a session's graph that it has not, or whose device was seeded since.

    Args:
        session: Which is about to run something.
    """
    streams = getattr(session.graph, _STREAMS, ())
    if not streams:
        return
    started = vars(session).setdefault(_STARTED, {})
    pending = [one for one in streams if started.get(one) != one.engine.num_seedings]
    if not pending:
        return
    # First, as the run that follows asks for it again.
    started.update((one, one.engine.num_seedings) for one in pending)
    initializers = [one.variable.initializer for one in pending]
    values = {
        initializer.inputs[1]: one.start()
        for one, initializer in zip(pending, initializers, strict=True)
    }
    session.run(initializers, values)


def _is_replaced() -> bool:
    # Variables get their initial values in the graph around functions, once.
    return device_of_trace() is not None and is_trace(tf.compat.v1.get_default_graph())


def _draw(kind: str, given: Mapping[str, Any], seed: int, seed2: int) -> tf.Tensor:
    # A user's seed that happens to be the last count is taken for that: it starts elsewhere then.
    is_counted = seed2 == num_counted_seeds(tf.compat.v1.get_default_graph()) - 1
    is_seeded = bool(seed or seed2) and not is_counted
    stream = _new_stream((seed or 0, seed2 or 0), is_seeded=is_seeded)
    return _DRAWS[kind](tf.random.Generator(state=stream.variable, alg="philox"), **given)


def _new_stream(seeds: tuple[int, int], *, is_seeded: bool) -> _Stream:
    device = device_of_trace()
    assert device is not None
    engine = device.engine
    graph = outermost_graph()
    with tf.init_scope():
        in_session = not tf.executing_eagerly()
        # What draws in a session is in functions, which are held by its graph.
        holder = tf.compat.v1.get_default_graph() if in_session else graph
        if not hasattr(holder, _STREAMS):
            setattr(holder, _STREAMS, [])
        streams = getattr(holder, _STREAMS)
        number = len(streams) + 1
        stream = _Stream(
            variable=_variable(in_session, number),
            engine=engine,
            seeds=seeds,
            is_seeded=is_seeded,
            number=number,
            num_seedings=engine.num_seedings,
        )
        if not in_session:
            stream.variable.assign(stream.start())
    streams.append(stream)
    if not in_session:
        engine.streams.add(stream)
    return stream


def _variable(in_session: bool, number: int) -> Any:
    zeros = [0, 0, 0]
    if not in_session:
        # A program on an IPU device reaches the host, and no other IPU device.
        with tf.device("/device:CPU:0"):
            return plain_variable(tf.constant(zeros, tf.int64), trainable=False, name=_NAME)
    with tf.device(None):
        return tf.compat.v1.Variable(
            tf.constant(zeros, tf.int64),
            trainable=False,
            collections=[],
            name=f"ipu_random_stream_{number}/{_NAME}",
            use_resource=True,
        )


def _signed(seed: int) -> int:
    """The lowest 64 bits of a seed, as those of a signed integer."""
    return (seed + 2**63) % 2**64 - 2**63


def _skipped(generator: tf.random.Generator, count: Any) -> dict[str, Any]:
    """Takes so many places of a stream, each of 256 numbers, for an operation without a state."""
    state = generator.skip(count)
    counter, key = (tf.bitcast(part, tf.uint64) for part in (state[:2], state[2:]))
    return {"key": key, "counter": counter, "alg": _PHILOX}


def _places(generator: tf.random.Generator, shape: Any) -> dict[str, Any]:
    """Takes a place for each number of a shape."""
    sizes = tf.cast(tf.convert_to_tensor(shape), tf.int64)
    return {"shape": shape, **_skipped(generator, tf.reduce_prod(sizes))}


def _seed(generator: tf.random.Generator) -> tf.Tensor:
    """Draws what operations take that have no keys, `(2,)` int64."""
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[2], dtype=tf.int64, **_skipped(generator, 1)
    )


def _for_each(shape: Any, parameters: tf.Tensor) -> tf.Tensor:
    """The shape of what is drawn if each of the parameters has samples of a shape."""
    shape = tf.convert_to_tensor(shape)
    return tf.concat([shape, tf.shape(parameters, shape.dtype)], 0)


def _poisson(
    generator: tf.random.Generator, shape: Any, rate: Any, dtype: Any = tf.int64
) -> tf.Tensor:
    rate = tf.convert_to_tensor(rate)
    return tf.raw_ops.StatelessRandomPoisson(
        shape=_for_each(shape, rate), seed=_seed(generator), lam=rate, dtype=dtype
    )


def _shuffle(generator: tf.random.Generator, value: Any) -> tf.Tensor:
    """Sorts by random keys, as XLA does, which has no shuffle without a state of its own."""
    value = tf.convert_to_tensor(value)
    if value.shape.rank == 0:
        return value
    # Reports know a draw by its scope, which TensorFlow's function does not open.
    with tf.name_scope("random_shuffle"):
        keys = tf.raw_ops.StatelessRandomUniformFullIntV2(
            dtype=tf.int64, **_places(generator, tf.shape(value)[:1])
        )
        order = tf.math.top_k(keys, tf.size(keys)).indices
        return tf.stop_gradient(tf.gather(value, order))


# By the names of TensorFlow's functions, whose parameters these take besides a generator.
_DRAWS: dict[str, Callable[..., tf.Tensor]] = {
    "random_uniform": lambda generator, shape, dtype: tf.raw_ops.StatelessRandomUniformV2(
        dtype=dtype, **_places(generator, shape)
    ),
    "random_uniform_int": lambda generator, shape, minval, maxval: (
        tf.raw_ops.StatelessRandomUniformIntV2(
            minval=minval, maxval=maxval, **_places(generator, shape)
        )
    ),
    "random_standard_normal": lambda generator, shape, dtype: tf.raw_ops.StatelessRandomNormalV2(
        dtype=dtype, **_places(generator, shape)
    ),
    "truncated_normal": lambda generator, shape, dtype: tf.raw_ops.StatelessTruncatedNormalV2(
        dtype=dtype, **_places(generator, shape)
    ),
    "random_gamma": lambda generator, shape, alpha: tf.raw_ops.StatelessRandomGammaV3(
        alpha=alpha, **_places(generator, _for_each(shape, alpha))
    ),
    "random_poisson_v2": _poisson,
    "random_shuffle": _shuffle,
    "multinomial": lambda generator, **given: tf.raw_ops.StatelessMultinomial(
        seed=_seed(generator), **given
    ),
}

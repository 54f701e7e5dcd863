"""Random numbers of Keras's layers, which `reset_ipu_seed` starts anew.

Keras keeps where a layer's masks are in a variable, `keras.random.SeedGenerator.state`: a seed and
a count, which programs read and write.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.runtime.engine import Engine

# What Keras calls such a variable, in whatever scopes.
LAYER_STATE = "seed_generator_state"
# What a variable has its stream as, so that both live as long.
_STREAM = "_ipu_layer_stream"


@dataclass(frozen=True, eq=False)
class _LayerStream:
    """Where a layer draws its numbers.

    Args:
        variable: The seed and the count of the layer, `(2,)` uint32.
        engine: The engine of the first device whose programs draw of it.
        number: The number of the layer among those of the first program that draws of it.
    """

    variable: Any
    engine: Engine
    number: int

    def start(self) -> list[int]:
        """What the variable holds before the first draw, since the device was seeded last.

        Layers of one program have different seeds, whatever they were made with: these are from
        Python's random numbers, unless a user gave them, and not the same in the next process.
        Equal programs draw alike after equal seeds, however many others there were before.
        """
        assert self.engine.seed is not None
        sequence = np.random.SeedSequence(self.engine.seed % 2**64, spawn_key=(self.number,))
        return [int(sequence.generate_state(1)[0]), 0]


def serve_layers(variables: Iterable[Any], engine: Engine) -> None:
    """Has `reset_ipu_seed` start the states of layers among variables of a program anew.

    If the device has been seeded already, a layer starts from that, unless it has drawn before,
    or goes on from a checkpoint: then its count is not zero.
    """
    with tf.init_scope():
        # In a session's graph only its runs could write them.
        if not tf.executing_eagerly():
            return
        states = {variable.ref(): variable for variable in variables if _is_layer_state(variable)}
        for number, variable in enumerate(states.values(), 1):
            if _STREAM not in vars(variable):
                _serve(variable, engine, number)


def _serve(variable: Any, engine: Engine, number: int) -> None:
    stream = _LayerStream(variable=variable, engine=engine, number=number)
    setattr(variable, _STREAM, stream)
    engine.streams.add(stream)
    if engine.seed is not None and int(variable.read_value()[1]) == 0:
        variable.assign(stream.start())


def _is_layer_state(variable: Any) -> bool:
    return variable.name.partition(":")[0].rpartition("/")[2] == LAYER_STATE

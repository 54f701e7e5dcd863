"""Errors that users match on, as rows of a table, and what brings them about."""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from ipu_keras.device import DRIVER
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras import PipelineStage
from ipu_keras.machine.system import SYSTEM

X = np.ones((8, 3), np.float32)
Y = np.ones((8, 1), np.float32)


@dataclass(frozen=True)
class Row:
    """An error.

    Attributes:
        error: The documented type, of an exception or a warning.
        phrase: The message, word for word, as scripts compare it; or what it has, before an
            ellipsis, where IPU software goes on in words that are not known.
        provoke: Brings the condition about.
    """

    error: type[BaseException]
    phrase: str
    provoke: Callable[[], Any]

    def check(self) -> None:
        """Fails unless the condition gives this error."""
        raises: Any = pytest.warns if issubclass(self.error, Warning) else pytest.raises
        phrase = self.phrase.removesuffix("...")
        with raises(self.error, match=re.escape(phrase)) as caught:
            self.provoke()
        if phrase == self.phrase:
            assert str(caught.value) == phrase

    def __str__(self) -> str:
        return re.sub(r"\W+", "_", self.phrase)[:60]


class Table(list[Row]):
    """Rows, to which functions that provoke errors are added by decorating them."""

    def __call__(self, error: type[BaseException], phrase: str) -> Callable[[Any], Any]:
        """A decorator of a function that gives this error."""

        def add(provoke):
            self.append(Row(error, phrase, provoke))
            return provoke

        return add


@contextlib.contextmanager
def devices() -> Iterator[None]:
    """The machine with devices of one, two and four IPUs."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = [1, 2, 4]
    config.configure_ipu_system()
    yield
    SYSTEM.reset()


@contextlib.contextmanager
def scope(ordinal=0, **options):
    with IPUStrategy(f"/device:IPU:{ordinal}", **options).scope() as strategy:
        yield strategy


def chain(stages=(), kind=keras.Model, **options):
    """A Functional model of two layers, in a scope if they have stages."""
    inputs = x = keras.Input((3,))
    for index, units in enumerate((2, 1)):
        stage = PipelineStage(stages[index]) if stages else contextlib.nullcontext()
        with stage:
            x = keras.layers.Dense(units, name=f"layer_{index}")(x)
    return kind(inputs, x, **options)


def sequential():
    return keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2, name="a"), keras.layers.Dense(1, name="b")]
    )


def compiled(model, **options):
    model.compile(**{"optimizer": "sgd", "loss": "mse", **options})
    return model


def fit(model, x=X, y=Y, **options):
    arrays = {"batch_size": 2} if isinstance(x, np.ndarray) else {"shuffle": False}
    model.fit(x, y, **{**arrays, "verbose": 0, **options})


def dataset(x=X, y=Y, drop_remainder=True):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(2, drop_remainder=drop_remainder)


def plain(**options):
    return compiled(chain(), **options)


def piped(**options):
    """A model of two stages that has been told how many gradients it accumulates."""
    model = compiled(chain((0, 1)), **{"steps_per_execution": 4, **options})
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    return model

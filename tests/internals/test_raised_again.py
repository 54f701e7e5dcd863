"""Notes outlive TensorFlow's and Keras's raising an error again."""

import doctest

import keras
import pytest
import tensorflow as tf

from ipu_keras.internals import raised_again
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops.embedding_ops import embedding_lookup

MESSAGE = "serialization_factor has to be at least 1, but was 0."
NOTE = "Received: serialization_factor=0"


def looked_up(ids):
    return embedding_lookup(tf.ones((4, 2)), ids, serialization_factor=0)


def test_examples():
    assert doctest.testmod(raised_again).failed == 0


def test_in_a_function_of_a_strategy():
    with pytest.raises(ValueError, match=MESSAGE) as raised:
        IPUStrategy().run(tf.function(looked_up), [tf.constant([1])])
    assert str(raised.value) != MESSAGE
    assert NOTE in raised.value.__notes__[0]
    assert len(raised.value.__notes__) == 1


def test_in_the_call_of_a_layer():
    class Lookup(keras.layers.Layer):
        def call(self, ids):
            return looked_up(ids)

    with pytest.raises(ValueError, match=MESSAGE) as raised, IPUStrategy().scope():
        Lookup()(tf.constant([1]))
    assert any(NOTE in note for note in raised.value.__notes__)


def test_of_other_errors_nothing_is_kept():
    def handled():
        try:
            raise KeyError("first")
        except KeyError as error:
            error.add_note("of the first")
            raise ValueError("second")  # noqa: B904

    with pytest.raises(ValueError, match="second") as raised:
        handled()
    raised_again.keep_notes(raised.value)
    assert not hasattr(raised.value, "__notes__")

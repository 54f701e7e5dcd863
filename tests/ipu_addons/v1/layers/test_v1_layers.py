"""The addons' layers for TensorFlow 1 are those of `rnn_ops`."""

import pytest

from ipu_addons.v1 import layers
from ipu_keras.ops import rnn_ops


@pytest.mark.parametrize(
    "name", ["PopnnAUGRU", "PopnnDynamicGRU", "PopnnDynamicLSTM", "PopnnGRU", "PopnnLSTM"]
)
def test_same_as_the_ops(name):
    assert getattr(layers, name) is getattr(rnn_ops, name)

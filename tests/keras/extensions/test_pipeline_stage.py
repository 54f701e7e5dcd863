import doctest
import re

import keras
import pytest
import tensorflow as tf

from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras import PipelineStage
from ipu_keras.keras.extensions import pipeline_stage
from ipu_keras.keras.extensions.pipeline_stage import (
    attach_pipeline_stages,
    current_stage,
    stage_of,
)


def test_the_example(strategy):
    assert doctest.testmod(pipeline_stage).failed == 0


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


def test_outside_of_a_strategy():
    message = "PipelineStage may only be used from within an IPUStrategy context.\nEnter `strategy."
    with raises(RuntimeError, message), PipelineStage(0):
        pass
    with raises(RuntimeError, message), tf.distribute.OneDeviceStrategy("CPU").scope():
        PipelineStage(0).__enter__()


def test_nested_stages(strategy):
    message = "Pipeline stages must not be nested.\nLeave the scope of stage 0 before that of stage"
    with strategy.scope(), PipelineStage(0):
        with raises(RuntimeError, f"{message} 1 is entered."), PipelineStage(1):
            pass
        with raises(RuntimeError, f"{message} 0 is entered."), PipelineStage(0):
            pass
        assert current_stage() == 0
    assert current_stage() is None


@pytest.mark.parametrize("stage", [-1, "0", 1.0, None, True])
def test_what_is_no_stage(stage):
    with raises(
        ValueError, f"{stage!r} is not a valid pipeline stage.\nStages are integers, count"
    ):
        PipelineStage(stage)


def test_a_scope_ends_with_an_error_and_can_be_entered_again(strategy):
    scope = PipelineStage(3)
    with strategy.scope():
        with pytest.raises(KeyError), scope:
            raise KeyError
        assert current_stage() is None
        with scope as entered:
            assert entered is scope
            assert current_stage() == 3


def test_layers_and_calls_remember_their_scope(strategy):
    with strategy.scope():
        inputs, outside = keras.Input([2]), keras.layers.Dense(2)
        with PipelineStage(1):
            made, called = keras.layers.Dense(2), outside(inputs)
        outside(called)
    assert stage_of(made) == 1
    assert stage_of(outside) is None
    assert [stage_of(node) for node in outside._inbound_nodes] == [1, None]


class Jealous(keras.layers.Layer):
    def __setattr__(self, name, value):
        assert not name.startswith("_ipu")
        super().__setattr__(name, value)


def test_a_layer_that_guards_its_attributes(strategy):
    with strategy.scope(), PipelineStage(2):
        layer = Jealous()
    assert stage_of(layer) == 2
    assert "_ipu_pipeline_stage" not in layer.get_config()


def test_attaching_twice_changes_nothing():
    make = keras.Layer.__new__
    attach_pipeline_stages()
    assert keras.Layer.__new__ is make


def test_strategies_without_extensions_have_stages_too(strategy):
    with IPUStrategy(enable_keras_extensions=False).scope(), PipelineStage(0):
        assert stage_of(keras.layers.Dense(2)) == 0

"""Suggested stages of Keras models."""

import doctest
import re

import keras
import pytest
import tensorflow as tf

from ipu_keras import profile, suggest_pipeline
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras import suggest_pipeline as suggestions
from ipu_keras.pipelining_ops import PipelineSchedule

X, Y = tf.TensorSpec((16, 64)), tf.TensorSpec((16,), tf.int32)


def sequential(*units):
    model = keras.Sequential([keras.Input((64,)), *map(keras.layers.Dense, units)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    return model


def test_examples_in_docstrings():
    assert doctest.testmod(suggestions).failed == 0


def test_a_sequential_model_in_training(capsys):
    # The last layer is as much work as all others.
    model = sequential(64, 64, 64, 8192)
    weights = [weight.numpy() for weight in model.weights]
    found = suggest_pipeline(model, 2, X, Y)
    assert found == [0, 0, 0, 1]
    printed = capsys.readouterr().out
    assert "Stages of" in printed
    assert "fits" in printed
    # Nothing ran.
    for weight, before in zip(model.weights, weights, strict=True):
        tf.debugging.assert_equal(weight.numpy(), before)


def test_prediction():
    found = suggest_pipeline(sequential(64, 64, 64, 64), 2, X, schedule=PipelineSchedule.Grouped)
    assert found == [0, 0, 1, 1]


def functional():
    """A layer is called twice, between others."""
    x = keras.Input((64,))
    shared = keras.layers.Dense(64, name="shared")
    h = keras.layers.Dense(64, name="first")(x)
    h = shared(h)
    h = keras.layers.Dense(64, name="between")(h)
    h = shared(h)
    for k in range(4):
        h = keras.layers.Dense(64, name=f"last{k}")(h)
    return keras.Model(x, h)


@pytest.mark.parametrize("has_stages", [False, True])
def test_a_functional_model_keeps_shared_layers_on_one_ipu(strategy, has_stages):
    with strategy.scope():
        model = functional()
    if has_stages:
        assignment = model.get_pipeline_stage_assignment()
        for position, one in enumerate(assignment):
            one.pipeline_stage = position // 4
        model.set_pipeline_stage_assignment(assignment)
    found = suggest_pipeline(model, 2, X)
    assert [one.pipeline_stage for one in found] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [one.layer.name for one in found[:2]] == ["first", "shared"]


def test_models_whose_stages_nobody_can_assign():
    x = keras.Input((64,))
    model = keras.Model(x, keras.layers.Dense(2)(x))
    with pytest.raises(
        ValueError, match=r"which has `get_pipeline_stage_assignment`. Received: model="
    ):
        suggest_pipeline(model, 2, X)


def test_numbers_of_ipus_that_cannot_be():
    for given in (1, "2", 2.0, X):
        message = re.escape(f"at least two IPUs. Received: num_ipus={given!r}")
        with pytest.raises(ValueError, match=message):
            suggest_pipeline(sequential(8, 8), given, X)
    with pytest.raises(ValueError, match=r"`num_ipus` must be at most 2, .* Received: num_ipus=4"):
        suggest_pipeline(sequential(8, 8), 4, X)


def test_options_of_poplar_without_a_model(capsys):
    options = {"availableMemoryProportion": "0.2", "cycleBackOff": "0.1"}
    with pytest.warns(UserWarning, match="no effect: 'cycleBackOff' in `matmul_opt") as warned:
        suggest_pipeline(sequential(8, 8), 2, X, matmul_options=options)
    assert [each.filename for each in warned] == [__file__]


def test_what_is_suggested_can_be_assigned():
    with IPUStrategy().scope():
        x = keras.Input((64,))
        h = x
        for units in (64, 64, 64, 32768):
            h = keras.layers.Dense(units)(h)
        model = keras.Model(x, h)
        model.set_pipeline_stage_assignment(suggest_pipeline(model, 2, X))
        found = [one.pipeline_stage for one in model.get_pipeline_stage_assignment()]
    assert found == [0, 0, 0, 1]


def dense():
    return [(64,), *map(keras.layers.Dense, (256, 512, 256, 512, 8))]


def recurrent():
    """Its loops write over what they carry, which costs nothing."""
    first = keras.layers.LSTM(64, return_sequences=True)
    return [(24, 32), first, keras.layers.LSTM(32), keras.layers.Dense(8)]


def convolutions():
    layers = []
    for filters in (16, 32, 32):
        layers += [
            keras.layers.Conv2D(filters, 3, padding="same"),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
        ]
    return [(16, 16, 3), *layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(8)]


# Three stages have a device of four IPUs.
@pytest.mark.parametrize(
    ("make_layers", "num_stages"), [(dense, 2), (dense, 3), (recurrent, 2), (convolutions, 2)]
)
@pytest.mark.usefixtures("strategy")
def test_promises_are_what_profile_says_of_the_stages(make_layers, num_stages, capsys):
    shape, *layers = make_layers()
    with IPUStrategy(f"/device:IPU:{num_stages}").scope():
        model = keras.Sequential([keras.Input(shape), *layers])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, steps_per_execution=8)
        specs = tf.TensorSpec((16, *shape)), Y
        model.set_pipeline_stage_assignment(suggest_pipeline(model, num_stages, *specs))
        # Each line ends with the balanced stage's layers, cycles and fullest tile in percent.
        lines = capsys.readouterr().out.splitlines()
        cells = [one for line in lines if len(one := re.findall(r"[\d,.]+", line)) == 7]
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4 * num_stages)
        report = profile(model, *specs)
    promised = [int(each[5].replace(",", "")) for each in cells]
    assert promised == [each.cycles for each in report.pipeline.stages]
    memory = report.model.memory
    shares = [100 * size / memory.tile_bytes for size in memory.max_bytes_by_ipu[:num_stages]]
    # The optimizer's state has no layout before it is traced.
    assert [float(each[6]) for each in cells] == pytest.approx(shares, abs=0.2)

"""Pipelines of functions beside those of Keras models: what they compute and what they cost."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import last_report
from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.pipelining_ops import OptimizerFunctionOutput, pipeline

BATCH, COUNT, UPDATES = 4, 8, 3


@pytest.fixture
def strategy():
    reset_ipu_configuration()
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    yield IPUStrategy()
    reset_ipu_configuration()


def data():
    random = np.random.default_rng(0)
    x = random.standard_normal((BATCH * COUNT * UPDATES, 20)).astype("float32")
    return x, random.integers(0, 3, len(x)).astype("int32")


def layers():
    made = [
        keras.layers.Dense(8, "relu", name="first", kernel_initializer="glorot_uniform"),
        keras.layers.Dense(3, name="second", kernel_initializer="glorot_uniform"),
    ]
    for layer, width in zip(made, (20, 8), strict=True):
        layer.build((None, width))
        random = np.random.default_rng(width)
        layer.kernel.assign(random.standard_normal(layer.kernel.shape) / 3)
    return made


def model_of(first, second):
    """A pipeline of two layers."""
    x = keras.Input((20,))
    model = keras.Model(x, second(first(x)))
    model.compile(
        keras.optimizers.SGD(0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=COUNT,
    )
    assignment = model.get_pipeline_stage_assignment()
    for stage, one in enumerate(assignment):
        one.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignment)
    model.set_pipelining_options(COUNT, device_mapping=[0, 1])
    return model


def batches(*arrays):
    queue = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(arrays).batch(BATCH, True))
    assert queue.initializer is None
    return queue


def test_inference_is_the_same_program(strategy, xla_from_the_start):
    x, _ = data()
    with strategy.scope():
        stages = layers()
        expected = model_of(*stages).predict(x[: BATCH * COUNT], batch_size=BATCH, verbose=0)
    of_keras = last_report()
    infeed, outfeed = batches(x), IPUOutfeedQueue()

    @tf.function
    def run():
        pipeline(stages, COUNT, infeed_queue=infeed, outfeed_queue=outfeed, device_mapping=[0, 1])

    strategy.run(run)
    report = last_report()
    (found,) = outfeed.dequeue()
    np.testing.assert_allclose(found.numpy().reshape(-1, 3), expected, rtol=1e-6)
    assert report.pipeline_timing == of_keras.pipeline_timing
    assert report.cycles_per_execution == of_keras.cycles_per_execution
    np.testing.assert_array_equal(report.memory_by_tile, of_keras.memory_by_tile)
    figures = [
        [(row.family, row.stage, row.cycles, row.flops) for row in each.rows]
        for each in (report, of_keras)
    ]
    assert figures[0] == figures[1]


def test_training_is_the_same_program_without_metrics(strategy):
    """Keras adds up the losses on the last stage; all else is equal."""
    x, y = data()
    with strategy.scope():
        trained = layers()
        model_of(*trained).fit(x, y, batch_size=BATCH, verbose=0, shuffle=False)
    of_keras = last_report()
    with strategy.scope():
        first, second = layers()
    infeed, outfeed = batches(x, y), IPUOutfeedQueue()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def optimizer(loss):
        return OptimizerFunctionOutput(tf.compat.v1.train.GradientDescentOptimizer(0.1), loss)

    @tf.function
    def run():
        pipeline(
            [lambda x, y: (first(x), y), lambda x, y: loss_of(y, second(x))],
            COUNT,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=optimizer,
            device_mapping=[0, 1],
            repeat_count=UPDATES,
        )

    strategy.run(run)
    (losses,) = outfeed.dequeue()
    assert losses.shape == (COUNT * UPDATES,)
    for one, other in zip([first, second], trained, strict=True):
        for found, expected in zip(one.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    figures = [cycles_of(each) for each in (last_report(), of_keras)]
    assert figures[0] == figures[1]
    assert {layer for layer, *_ in figures[0]} == {"first", "second", "stage"}


def cycles_of(report):
    """Of the operations of the layers, and of the copies between stages, without their names."""
    return sorted(
        (layer, str(row.stage), row.family, row.cycles)
        for row in report.rows
        for layer in ("first", "second", "stage")
        if layer in row.name.split("/") or row.name.startswith(f"{layer} ")
        if "weight_update" not in row.name
    )

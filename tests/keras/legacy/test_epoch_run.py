import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import LOSS

from ipu_keras.keras import Model, PipelineSequential

# Keras warns of datasets that it does not shuffle.
UNSHUFFLED = {"fit": {"shuffle": False}, "evaluate": {}, "predict": {}}


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


@pytest.fixture(scope="module")
def model(strategies):
    """Two replicas, each of which takes 4 batches in a step of training."""
    with strategies[2].scope():
        inputs = keras.Input([6])
        outputs = keras.layers.Dense(3)(inputs)
        model = Model(inputs, outputs, gradient_accumulation_count=4)
        model.compile("sgd", LOSS, jit_compile=False)
    return model


@pytest.fixture(scope="module")
def pipeline(strategies):
    """One pipeline, which takes 4 batches in every step."""
    with strategies[2].scope():
        stages = [[keras.Input([6]), keras.layers.Dense(4)], [keras.layers.Dense(3)]]
        model = PipelineSequential(stages, gradient_accumulation_count=4)
        model.compile("sgd", LOSS, jit_compile=False)
    return model


@pytest.fixture(autouse=True)
def scope(strategies):
    with strategies[2].scope():
        yield


def batches(data, batch_size=8):
    return tf.data.Dataset.from_tensor_slices(data).batch(batch_size, drop_remainder=True)


def test_infinite_datasets(model, data):
    message = (
        "When using an infinitely repeating dataset, you must provide the number of steps per epoch"
        " (steps_per_epoch). Pass `steps_per_epoch` to `fit`, `steps` to `evaluate` or `predict`, "
    )
    dataset = batches(data).repeat()
    for run in (model.fit, model.evaluate, model.predict):
        with raises(ValueError, message):
            run(dataset, verbose=0, **UNSHUFFLED[run.__name__])


def test_batches_that_are_no_whole_steps(model, pipeline, data):
    message = (
        "Model requires the number of mini-batches in the dataset (12) to be evenly divisible by "
        "the gradient accumulation count (4) times the number of replicas (2), which take 8 in a "
        "step. Leave some out, for instance with `take(8)`, or set the steps of an epoch."
    )
    with raises(ValueError, message):
        model.fit(batches(data, 4).take(12), verbose=0, shuffle=False)
    with raises(ValueError, message):
        model.fit(*(part[:48] for part in data), batch_size=4, verbose=0)
    message = (
        "Model requires the number of mini-batches in the dataset (3) to be evenly divisible by "
        "the gradient accumulation count (1) times the number of replicas (2), "
    )
    with raises(ValueError, message):
        model.evaluate(batches(data).take(3), verbose=0)
    message = (
        "PipelineSequential requires the number of mini-batches in the dataset (6) to be evenly "
        "divisible by the gradient accumulation count (4) times the number of replicas (1), "
    )
    for run in (pipeline.fit, pipeline.evaluate, pipeline.predict):
        with raises(ValueError, message):
            run(batches(data).take(6), verbose=0, **UNSHUFFLED[run.__name__])
    message = (
        "Model requires the number of mini-batches in the dataset (12) to be evenly divisible by "
        "the gradient accumulation count (4) times the number of replicas (2), which take 8 in a "
        "step. The steps of an epoch are those of all replicas. Received: 3 steps."
    )
    with raises(ValueError, message):
        model.fit(batches(data).repeat(), steps_per_epoch=3, verbose=0, shuffle=False)
    assert int(model.optimizer.iterations) == int(pipeline.optimizer.iterations) == 0


def test_partial_batches(model, data):
    with raises(ValueError, "The provided set of data has a partial batch, which could result in "):
        model.fit(*(part[:63] for part in data), batch_size=8, verbose=0)
    with raises(
        ValueError, "The provided set of data contains a shape (None, 6) which is not full"
    ):
        model.fit(tf.data.Dataset.from_tensor_slices(data).batch(8), verbose=0, shuffle=False)


@pytest.mark.parametrize(("steps", "epochs", "needed"), [(4, 1, 16), (18, 1, 72)])
def test_too_few_batches(model, data, steps, epochs, needed):
    message = (
        "Your input does not have enough data. Make sure that your dataset or generator can "
        f"generate at least {needed} batches ({steps} steps of 4 batches for {epochs} epochs), for "
        "instance with `repeat()`. A step of Model takes 4 batches of one replica. Received: 8 b"
    )
    with raises(ValueError, message):
        model.fit(batches(data), epochs=epochs, steps_per_epoch=steps, verbose=0, shuffle=False)


def test_epochs_that_use_up_the_data_begin_it_again(model, data):
    before = int(model.optimizer.iterations)
    model.fit(batches(data), epochs=2, steps_per_epoch=2, verbose=0, shuffle=False)
    assert int(model.optimizer.iterations) == before + 2


def test_unknown_sizes(model, data):
    unknown = batches(data).filter(lambda x, y: True)
    with raises(ValueError, "Could not infer the size of the data. You must specify the number of"):
        model.fit(unknown, verbose=0, shuffle=False)
    before = int(model.optimizer.iterations)
    model.fit(unknown, steps_per_epoch=2, verbose=0, shuffle=False)
    assert int(model.optimizer.iterations) == before + 1


def test_generators_of_keras(model, data):
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return tuple(part[8 * index : 8 * index + 8] for part in data)

    history = model.fit(Batches(), verbose=0, shuffle=False)
    assert history.params["steps"] == 1
    assert np.isfinite(history.history["loss"]).all()

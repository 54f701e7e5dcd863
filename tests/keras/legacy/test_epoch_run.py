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
        " (steps_per_epoch).\nPass `steps_per_epoch` to `fit`, `steps` to `evaluate` or `predict`, "
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
        given = data[:1] if run == pipeline.predict else data
        with raises(ValueError, message):
            run(batches(given).take(6), verbose=0, **UNSHUFFLED[run.__name__])
    message = (
        "Model requires the number of mini-batches in the dataset (12) to be evenly divisible by "
        "the gradient accumulation count (4) times the number of replicas (2), which take 8 in a "
        "step. The steps of an epoch are those of all replicas. Received: 3 steps."
    )
    with raises(ValueError, message):
        model.fit(batches(data).repeat(), steps_per_epoch=3, verbose=0, shuffle=False)
    assert int(model.optimizer.iterations) == int(pipeline.optimizer.iterations) == 0


def test_partial_batches_of_arrays_are_dropped(pipeline, data):
    x, y = data
    whole = pipeline.predict(x[:32], batch_size=8, verbose=0)
    loss = pipeline.evaluate(x[:32], y[:32], batch_size=8, verbose=0)
    message = re.escape(
        "PipelineSequential runs whole batches: of each pass over the arrays, 5 samples, which "
        "fill no batch, are dropped. Choose a `batch_size` that divides the number of samples to "
        "use all. Received: batch_size=8"
    )
    before = int(pipeline.optimizer.iterations)
    x, y = x[:37], y[:37]
    with pytest.warns(UserWarning, match=message):
        predicted = pipeline.predict(x, batch_size=8, verbose=0)
    np.testing.assert_array_equal(predicted, whole)
    with pytest.warns(UserWarning, match=message):
        assert pipeline.evaluate(x, y, batch_size=8, verbose=0) == loss
    with pytest.warns(UserWarning, match=message):
        history = pipeline.fit(x, y, 8, epochs=2, validation_data=(x, y), verbose=0)
    assert int(pipeline.optimizer.iterations) == before + 2
    assert len(history.history["val_loss"]) == 2


def test_arrays_that_fill_no_batch(pipeline, data):
    with (
        pytest.warns(UserWarning, match="7 samples, which fill no batch, are dropped"),
        raises(ValueError, "The provided dataset contains 0 items, but all 1 replicas are "),
    ):
        pipeline.predict(data[0][:7], batch_size=8, verbose=0)


def test_partial_batches_of_datasets(model, data):
    with raises(
        ValueError, "The provided set of data contains a shape (None, 6) which is not full"
    ):
        model.fit(tf.data.Dataset.from_tensor_slices(data).batch(8), verbose=0, shuffle=False)


def test_labels_have_no_place_in_predict(model, data):
    message = "`predict` of Model takes data without labels. Received: elements of 2 parts; leave "
    with raises(ValueError, message):
        model.predict(batches(data), verbose=0)
    inputs = batches(data).map(lambda x, y: (x,))
    assert model.predict(inputs, verbose=0).shape == (64, 3)


def test_without_labels_nothing_is_trained_or_evaluated(model, data):
    for method in ("fit", "evaluate"):
        run = getattr(model, method)
        message = f"`{method}` of Model needs labels, which the loss compares the outputs with. Rec"
        with raises(ValueError, message):
            run(data[0], batch_size=8, verbose=0)
        with raises(ValueError, message):
            run(batches(data[0]), verbose=0, **UNSHUFFLED[method])
    with raises(ValueError, "`evaluate` of Model needs labels"):
        model.fit(*data, batch_size=8, validation_data=batches(data[0]), verbose=0)


def test_fewer_batches_than_a_step_takes(model, data):
    message = (
        "Model requires the number of mini-batches in the dataset (2) to be evenly divisible by "
        "the gradient accumulation count (4) times the number of replicas (2), which take 8 in a "
        "step. Give at least 8 batches, for instance by a smaller batch size."
    )
    with raises(ValueError, message):
        model.fit(batches(data).take(2), verbose=0, shuffle=False)


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

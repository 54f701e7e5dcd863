"""Calls reuse what calls before them have made, see what has changed, and leave nothing behind."""

import os
import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import assert_same, classifier

# Stock Keras reads a variable with np.array(), whose `copy` argument TensorFlow's
# __array__ does not know yet; it warns on the CPU as well.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture(scope="module")
def stepping(twins):
    """Twins with one step per execution, so that single batches have the programs of `fit`."""
    return twins(classifier)


def all_calls(model, x, y, batch_size=8):
    """What each method returns, by its name."""
    batch = x[:batch_size], y[:batch_size]
    options = {"batch_size": batch_size, "verbose": 0}
    return {
        "fit": model.fit(x, y, epochs=2, shuffle=False, **options).history,
        "evaluate": model.evaluate(x, y, return_dict=True, **options),
        "predict": model.predict(x, **options),
        "train_on_batch": model.train_on_batch(*batch, return_dict=True),
        "test_on_batch": model.test_on_batch(*batch, return_dict=True),
        "predict_on_batch": model.predict_on_batch(batch[0]),
        "call": model(batch[0]).numpy(),
    }


def same_calls(pair, *data, **options):
    stock, model = pair
    expected, found = (all_calls(each, *data, **options) for each in pair)
    assert_same(found, expected)
    assert_same(model.get_weights(), stock.get_weights())
    return found


def set_weights(model, path):
    model.set_weights([weight * 0.5 for weight in model.get_weights()])


def assign(model, path):
    model.layers[0].kernel.assign(tf.ones([6, 8]))


def load_weights(model, path):
    changed = keras.models.clone_model(model)
    changed.set_weights([weight + 0.1 for weight in model.get_weights()])
    changed.save_weights(path)
    model.load_weights(path)


def set_learning_rate(model, path):
    model.optimizer.learning_rate = 0.5


def freeze(model, path):
    model.layers[0].trainable = not model.layers[0].trainable
    model.compile("sgd", model.loss, metrics=["accuracy"], jit_compile=False)


def compile_again(model, path):
    model.compile("adam", "mse", metrics=["mae"], jit_compile=False)


def write_metrics(model, path):
    for variable in model.metrics_variables:
        variable.assign(7)


CHANGES = [set_weights, assign, load_weights, set_learning_rate, write_metrics, freeze]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_changes_between_calls_is_seen(stepping, data, tmp_path, change):
    before = same_calls(stepping, *data)
    for model in stepping:
        change(model, tmp_path / "w.weights.h5")
    after = same_calls(stepping, *data)
    assert before["fit"]["loss"] != after["fit"]["loss"]


def test_a_model_that_is_compiled_again(twins, data):
    pair, labels = twins(classifier), np.eye(3, dtype=np.float32)[data[1]]
    same_calls(pair, *data)
    for model in pair:
        compile_again(model, None)
    assert set(same_calls(pair, data[0], labels)["fit"]) == {"loss", "mae"}


def test_arrays_that_are_changed_in_place(stepping, data):
    x, y = (array.copy() for array in data)
    before = same_calls(stepping, x, y)
    x *= -2
    y[:] = y[::-1].copy()
    after = same_calls(stepping, x, y)
    assert not np.allclose(before["predict_on_batch"], after["predict_on_batch"])


def test_sizes_types_and_models_in_turns(stepping, twins, data):
    other = twins(classifier, optimizer="adam")
    kinds = [np.asarray, tf.constant, lambda array: array.astype(np.float64)]
    for batch_size, kind in zip((8, 4, 8, 16, 4), [*kinds, *kinds], strict=False):
        for pair in (stepping, other):
            same_calls(pair, kind(data[0]), data[1], batch_size=batch_size)


def test_calls_within_a_tape(stepping, data):
    with tf.GradientTape():
        same_calls(stepping, *data)


class Raising(keras.callbacks.Callback):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def on_train_batch_end(self, batch, logs=None):
        raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no")], ids=repr)
def test_calls_after_one_that_raised(stepping, data, error):
    x, y = data
    for model in stepping:
        with pytest.raises(type(error)):
            model.fit(x, y, batch_size=8, callbacks=[Raising(error)], shuffle=False, verbose=0)
    same_calls(stepping, *data)
    for model in stepping:
        for wrong in (x[:8, :5], np.full((8, 6), "a")):
            for call in (model.train_on_batch, model.fit):
                with pytest.raises((ValueError, TypeError, tf.errors.OpError)):
                    call(wrong, y[:8])
    same_calls(stepping, *data)


@pytest.fixture
def many_switches():
    """Has threads take turns often, in the middle of whatever they do."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("many_switches")
def test_calls_on_several_threads(stepping, data):
    _, model = stepping
    x, _ = data
    batches = [x[start : start + 8] for start in range(0, 64, 8)]
    expected = [model.predict_on_batch(batch) for batch in batches]
    found = {}

    def predict(index):
        for _ in range(10):
            found[index] = model.predict_on_batch(batches[index])
            found[index, "all"] = model.predict(x, batch_size=8, verbose=0)

    threads = [threading.Thread(target=predict, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, outputs in enumerate(expected):
        np.testing.assert_array_equal(found[index], outputs)
        np.testing.assert_array_equal(found[index, "all"], np.concatenate(expected))


def resources(model):
    """Threads, open files and executables, of which a call may leave none behind; and bytes."""
    functions = model.train_function, model.test_function, model.predict_function
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return (
        # Of a pool of TensorFlow's, one may have run Python for the first time.
        sum(not isinstance(t, threading._DummyThread) for t in threading.enumerate()),
        len(os.listdir("/proc/self/fd")),
        sum(len(function.executables) for function in functions),
    ), pages * os.sysconf("SC_PAGE_SIZE")


def test_many_calls_leave_nothing_behind(strategy, data):
    with strategy.scope():
        model = classifier()
    x, y = data[0][:16], data[1][:16]
    for _ in range(10):
        all_calls(model, x, y)
    before, bytes_before = resources(model)
    for _ in range(60):
        all_calls(model, x, y)
    after, bytes_after = resources(model)
    assert after == before
    # Those of single batches have a place for weights of samples, and so programs of their own.
    assert before[2] == 6
    # An array, a graph or a program of each call would be more than 10 KB; this is 420 calls.
    assert bytes_after - bytes_before < 4 << 20


def test_each_thread_has_a_call_of_its_own(stepping, data):
    """Or one would close the feeds of another."""
    on_ipu = stepping[1]._ipu
    call = {"x": data[0], "callbacks": None, "verbose": 0}
    seen, entered, ended = [], threading.Event(), threading.Event()

    def work():
        seen.append(on_ipu.run)
        with on_ipu.running("predict", dict(call)):
            seen.append(on_ipu.run)
            entered.set()
            ended.wait(30)

    thread = threading.Thread(target=work)
    with on_ipu.running("predict", dict(call)):
        own = on_ipu.run
        thread.start()
        assert entered.wait(30)
        assert on_ipu.run is own
    assert on_ipu.run is None
    assert on_ipu.is_running
    ended.set()
    thread.join()
    assert not on_ipu.is_running
    assert seen[0] is None
    assert seen[1] is not own

"""What Keras 2 took is explained where Keras 3 refuses it, and nothing else is."""

import doctest
import re
import traceback

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.internals import keras_2_habits
from ipu_keras.internals.keras_2_habits import explain
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM

X = np.zeros((8, 6), np.float32)
Y = np.zeros((8, 1), np.float32)


@pytest.fixture(scope="module")
def strategy():
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    IPUConfig().configure_ipu_system()
    yield IPUStrategy()
    SYSTEM.reset()


def compiled(loss="mse", outputs=1):
    model = keras.Sequential([keras.Input([6]), keras.layers.Dense(outputs, "softmax")])
    model.compile("sgd", loss, jit_compile=False)
    return model


def subclass_of(kind, *arguments):
    """A class that gives its base these arguments, `"self"` for itself."""

    def __init__(self):
        kind.__init__(self, *(self if one == "self" else one for one in arguments))

    return type("Mine", (kind,), {"__init__": __init__})()


class AddsVariable(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_variable("kernel", shape=shape[1:])

    def call(self, inputs):
        return inputs * self.kernel


class Minimizes(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(inputs)

    def train_step(self, data):
        x, y = data
        loss = lambda: tf.reduce_mean((self(x) - y) ** 2)  # noqa: E731
        self.optimizer.minimize(loss, self.trainable_variables)
        return {}


def fit_minimizing():
    model = Minimizes()
    model.compile("sgd", "mse", jit_compile=False)
    model.fit(X, Y, batch_size=4, verbose=0)


def rank_1_inputs():
    model = Minimizes()
    model.compile("sgd", "mse", jit_compile=False)
    model.predict(X[:, 0], batch_size=4, verbose=0)


sgd, layers = keras.optimizers.SGD, keras.layers
# What is done, the error of Keras 3 or Python, what that says, and what is added.
HABITS = [
    (lambda: subclass_of(keras.Model, "self"), TypeError, "Layer.__init__() takes", "super().__in"),
    (lambda: subclass_of(layers.Layer, "name"), TypeError, "Layer.__init__() takes", "name=name"),
    (lambda: subclass_of(keras.callbacks.Callback, "self"), TypeError, "Callback.", "super().__in"),
    (lambda: keras.Input(shape=(80)), ValueError, "Cannot convert '80' to", "`shape=(80,)`"),
    (lambda: layers.InputLayer(6), ValueError, "Cannot convert '6' to a shape", "`shape=(80,)`"),
    (
        lambda: compiled("categorical_crossentropy", 3).fit(X, Y[:, 0], batch_size=4, verbose=0),
        ValueError,
        "Arguments `target` and `output` must have the same rank",
        "labels[:, None]",
    ),
    (
        lambda: compiled("mse", 3).train_on_batch(X, Y[:, 0]),
        ValueError,
        "Dimensions must be equal",
        "'sparse_categorical_crossentropy'",
    ),
    (rank_1_inputs, ValueError, "expected min_ndim=2, found ndim=1", "x[:, None]"),
    (lambda: layers.Dense(3, batch_input_shape=(8, 6)), ValueError, "Unrecognized", "batch_shape="),
    (lambda: layers.LSTM(3, time_major=True), ValueError, "Unrecognized keyword", "PopnnLSTM"),
    (lambda: layers.BatchNormalization(fused=True), ValueError, "Unrecognized", "leave `fused`"),
    (lambda: AddsVariable()(X), TypeError, "got multiple values for", "add_weight(shape="),
    (lambda: sgd(lr=0.1), ValueError, "Argument(s) not recognized: {'lr'", "`learning_rate`"),
    (lambda: sgd(0.1).lr, AttributeError, "'SGD' object has no attribute 'lr'", "`learning_rate`"),
    (lambda: sgd().minimize(print), AttributeError, "'SGD' object has no", "apply_gradients("),
    (fit_minimizing, AttributeError, "'SGD' object has no attribute 'minim", "apply_gradients("),
    (lambda: subclass_of(sgd, "mine"), ValueError, "`learning_rate` should be", "comes first"),
    (
        lambda: compiled().compile(tf.compat.v1.train.GradientDescentOptimizer(0.1), "mse"),
        ValueError,
        "Could not interpret optimizer identifier",
        "`keras.optimizers` only",
    ),
    (lambda: compiled().fit_generator(X), AttributeError, "'Sequential' obj", "PyDataset"),
    (lambda: compiled().predict_classes(X), AttributeError, "'Sequential' obj", "numpy.argmax("),
    (lambda: compiled().reset_states(), AttributeError, "'Sequential' obj", "`reset_state()`"),
    (lambda: compiled().fit(X, Y, workers=2), TypeError, "got an unexpected", "PyDataset"),
    (
        lambda: compiled().predict(X, max_queue_size=2),
        TypeError,
        "ModelExtension.predict() got an unexpected keyword argument 'max_queue_size'",
        "PyDataset",
    ),
    (
        lambda: compiled().compile("sgd", "mse", experimental_steps_per_execution=2),
        TypeError,
        "got an unexpected keyword argument",
        "Write `steps_per_execution`.",
    ),
    (
        lambda: compiled().compile("sgd", "mse", sample_weight_mode="temporal"),
        TypeError,
        "got an unexpected keyword argument",
        "Leave it out",
    ),
    (
        lambda: keras.callbacks.ModelCheckpoint("a.keras", period=2),
        TypeError,
        "ModelCheckpoint.__init__() got an unexpected",
        "`save_freq`",
    ),
    (lambda: keras.Input([6]).get_shape(), AttributeError, "'KerasTensor' object", "`x.shape`"),
    (lambda: keras.backend.sum(X), AttributeError, "module 'keras.backend' has no", "`keras.ops`"),
    (lambda: layers.experimental, AttributeError, "module 'keras.layers' has", "in `keras.layers`"),
    (lambda: keras.optimizers.experimental, AttributeError, "module 'keras.op", "keras.optimizers"),
    (
        lambda: keras.mixed_precision.experimental,
        AttributeError,
        "module 'keras.mixed_precision' has",
        "set_dtype_policy('mixed_float16')",
    ),
    (lambda: keras.Sequential([], "net"), ValueError, "Expected `trainable` to be", "name=...)"),
    (
        lambda: layers.Layer().add_weight("kernel", shape=(3,)),
        ValueError,
        "`name` must be passed as a keyword argument",
        "add_weight(shape=",
    ),
    (lambda: layers.Layer().add_metric(1), NotImplementedError, "Layer `add_me", "update_state"),
    (lambda: compiled().save("net"), ValueError, "Invalid filepath extension", "'name.keras'"),
    (lambda: compiled().save_weights("net"), ValueError, "filename must end in", "weights.h5"),
    (
        lambda: keras.callbacks.ModelCheckpoint("net"),
        ValueError,
        "The filepath provided must end in `.keras`",
        "`name.keras`",
    ),
    (keras.optimizers.legacy.SGD, ImportError, "is not supported in Keras 3", "keras.optimizers"),
]


def test_the_example():
    assert doctest.testmod(keras_2_habits).failed == 0


def notes_of(error):
    """The notes of an error, without the one that says what a method was given."""
    notes = getattr(error, "__notes__", ())
    return [note for note in notes if not note.startswith("Arguments of `")]


@pytest.mark.parametrize(("do", "error", "text", "added"), HABITS)
def test_a_habit_in_the_scope_of_a_strategy(strategy, do, error, text, added):
    with pytest.raises(error, match=re.escape(text)) as raised, strategy.scope():
        do()
    (note,) = notes_of(raised.value)
    assert note.startswith("This is written for Keras 2. In Keras 3: ")
    assert added in note
    # What users see.
    printed = "".join(traceback.format_exception(raised.value))
    assert printed.index(str(raised.value)) < printed.index(note)
    explain(raised.value)
    assert notes_of(raised.value) == [note]


def test_every_habit_is_provoked(strategy):
    explained = set()
    for do, *_ in HABITS:
        with pytest.raises(Exception, match=r"\w") as raised, strategy.scope():
            do()
        explained.update(notes_of(raised.value))
    assert len(explained) == len({habit.instead for habit in keras_2_habits._HABITS})


def test_models_explain_outside_of_the_scope_too(strategy):
    with strategy.scope():
        model, minimizing = compiled("categorical_crossentropy", 3), Minimizes()
    minimizing.compile("sgd", "mse", jit_compile=False)
    labels = Y[:, 0]
    for call, added in (
        (lambda: model.fit(X, labels, batch_size=4, verbose=0), "labels[:, None]"),
        (lambda: model.evaluate(X, labels, batch_size=4, verbose=0), "labels[:, None]"),
        (lambda: model.train_on_batch(X, labels), "labels[:, None]"),
        (lambda: model.test_on_batch(X, labels), "labels[:, None]"),
        (lambda: model.evaluate(X, Y, use_multiprocessing=True), "PyDataset"),
        (lambda: minimizing.predict_on_batch(X[:, 0]), "x[:, None]"),
        (lambda: minimizing(X[:, 0]), "x[:, None]"),
        (lambda: model.compile("sgd", "mse", target_tensors=[Y]), "Leave it out"),
    ):
        with pytest.raises((TypeError, ValueError)) as raised:
            call()
        assert added in "".join(notes_of(raised.value)), str(raised.value)


class Options:
    """Of a user, who has forgotten some."""

    def __init__(self):
        self.batch_size = 4


@pytest.mark.parametrize(
    "do",
    [
        lambda: Options().lr,
        lambda: Options().minimize,
        lambda: Options("self"),
        lambda: (lambda x: x)(workers=2),
        lambda: sgd(momentum=2.0, epsilon=1),
        lambda: keras.Input(shape="8"),
        lambda: tf.reduce_sum(keras.Input([6])),
        lambda: [][0],
    ],
)
def test_other_errors_stay_as_they_are(strategy, do):
    with pytest.raises(Exception, match=r"\w") as raised, strategy.scope():
        do()
    assert not notes_of(raised.value)


def test_keras_alone_is_left_alone():
    with pytest.raises(ValueError, match="Cannot convert '80' to a shape") as raised:
        keras.Input(shape=(80))
    assert not notes_of(raised.value)


class Forgetful(keras.Model):
    def call(self, x):
        return x

    def train_step(self, data):
        raise KeyError("of a user")


def test_lines_of_users_are_shown_only(strategy):
    def lines():
        with pytest.raises(KeyError) as raised:
            model.fit(X, Y, batch_size=4, verbose=0)
        return [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]

    with strategy.scope():
        model = Forgetful()
        model.compile("sgd", "mse", jit_compile=False)
    assert lines() == ["lines", "explaining", "train_step"]
    keras.config.disable_traceback_filtering()
    try:
        assert {"fit", "_run_step"} < set(lines())
    finally:
        keras.config.enable_traceback_filtering()

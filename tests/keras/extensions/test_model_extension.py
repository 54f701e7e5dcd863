import doctest
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import LOSS, assert_same, classifier, devices_of, fit_same
from keras import tree

from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras.extensions import model_extension
from ipu_keras.keras.extensions.model_extension import Arguments

IPU = "/job:localhost/replica:0/task:0/device:IPU:0"

# Stock Keras reads a variable with np.array(), whose `copy` argument TensorFlow's
# __array__ does not know yet; it warns on the CPU as well.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def batched(data):
    return tf.data.Dataset.from_tensor_slices(data).batch(8, drop_remainder=True)


def raises(error, message):
    return pytest.raises(error, match=re.escape(message))


def test_example_in_the_docstring(strategy):
    assert doctest.testmod(model_extension).failed == 0


# Equal results: fit

WEIGHTS = np.linspace(0.0, 2.0, 64).astype("float32")


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_equals_stock(twins, data, optimizer):
    """As users compile: the compiler chooses the execution."""
    pair = twins(classifier, optimizer=optimizer, steps_per_execution=4, jit_compile="auto")
    fit_same(*pair, *data, batch_size=8, epochs=5, validation_data=data)


@pytest.mark.parametrize("steps_per_execution", [1, 8])
def test_training_does_not_depend_on_the_steps_per_execution(twins, data, steps_per_execution):
    pair = twins(classifier, steps_per_execution=steps_per_execution, jit_compile="auto")
    history = fit_same(*pair, *data, batch_size=8, epochs=3)
    assert history.history["accuracy"][-1] != history.history["accuracy"][0]


@pytest.mark.parametrize(
    "options",
    [
        {"validation_split": 0.5, "validation_freq": 2, "epochs": 4},
        {"validation_split": 0.25, "validation_batch_size": 4, "batch_size": 4},
        {"initial_epoch": 2, "epochs": 4, "sample_weight": WEIGHTS},
        {"class_weight": {0: 1.0, 1: 3.0, 2: 0.5}},
    ],
    ids=["split", "batch_sizes", "initial_epoch", "class_weight"],
)
def test_options_of_fit(pair, data, options):
    fit_same(*pair, *data, **{"batch_size": 8, **options})


def test_repeated_datasets_with_steps(pair, data):
    dataset = batched(data)
    fit_same(
        *pair,
        dataset.repeat(),
        steps_per_epoch=12,
        epochs=3,
        validation_data=dataset,
        validation_steps=4,
        class_weight={0: 1.0, 1: 3.0, 2: 0.5},
    )
    fit_same(*pair, dataset, epochs=3, validation_data=dataset.repeat(), validation_steps=6)


def test_validation_data_is_read_anew_in_each_epoch(pair, data, executed):
    """So it need not last for all epochs, as training data has to."""
    dataset = batched(data)
    fit_same(*pair, dataset, epochs=3, validation_data=dataset, validation_steps=8)
    assert executed("test") == (12, 24)


def test_shuffled_training_sees_every_sample_once(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1, use_bias=False)])
        model.compile("sgd", metrics=[keras.metrics.Mean()], jit_compile=False)

    class Sum(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="sum")
            self.total = self.add_weight(initializer="zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.total.assign_add(tf.reduce_sum(y_true))

        def result(self):
            return self.total + 0.0

    with strategy.scope():
        metric = Sum()
    model.compile("sgd", "mse", metrics=[metric], steps_per_execution=2, jit_compile=False)
    values = np.arange(32, dtype="float32")[:, None]
    history = model.fit(0 * values, values, batch_size=8, epochs=2, verbose=0)
    assert history.history["sum"] == [496.0, 496.0]


# Equal results: evaluate, predict and single batches


def test_evaluate_equals_stock(pair, data):
    for options in ({}, {"return_dict": True, "sample_weight": WEIGHTS}):
        expected, actual = (
            model.evaluate(*data, batch_size=8, verbose=0, **options) for model in pair
        )
        assert_same(actual, expected)
        assert tree.map_structure(type, actual) == tree.map_structure(type, expected)
    expected, actual = (model.evaluate(batched(data), steps=4, verbose=0) for model in pair)
    assert_same(actual, expected)


def test_predict_equals_stock(pair, data):
    inputs = batched(data).map(lambda x, y: x)
    for options in ({"x": data[0], "batch_size": 8}, {"x": inputs}, {"x": inputs, "steps": 4}):
        expected, actual = (model.predict(verbose=0, **options) for model in pair)
        assert_same(actual, expected)
        assert type(actual) is type(expected)


def test_predict_of_a_compiled_model_comes_before_fit(twins, data):
    """Predicting must not build metrics, which need labels."""
    stock, model = twins(classifier, steps_per_execution=2)
    model.predict(data[0], batch_size=8, verbose=0)
    model.predict_on_batch(data[0][:8])
    fit_same(stock, model, *data, batch_size=8)


def test_steps_that_look_something_up_in_a_table(strategy):
    """TensorFlow alone does not know the shape of what is found."""
    with strategy.scope():
        inputs = keras.Input((3,), dtype="int32")
        found = keras.layers.IntegerLookup(vocabulary=[5, 7, 9])(inputs)
        outputs = keras.layers.Embedding(4, 2)(found)
        model = keras.Model(inputs, keras.layers.Dense(1)(outputs))
    model.compile("sgd", "mse", steps_per_execution=4)
    data = np.int32([[5, 7, 8], [9, 5, 5]] * 4)
    labels = np.zeros((8, 3, 1), "float32")
    expected = model(data).numpy()
    np.testing.assert_allclose(model.predict(data, 2, verbose=0), expected, rtol=1e-5)
    loss = model.evaluate(data, labels, 2, verbose=0)
    np.testing.assert_allclose(loss, (expected**2).mean(), rtol=1e-5)


def test_predict_of_a_model_that_is_not_compiled(strategy, data):
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(2)])
        unbuilt = keras.Sequential([keras.layers.Dense(2)])
    outputs = model.predict(data[0], batch_size=8, verbose=0)
    assert_same(outputs, model.call(data[0]).numpy())
    assert unbuilt.predict_on_batch(data[0]).shape == (64, 2)
    assert devices_of([*model.variables, *unbuilt.variables]) == {"IPU:0"}


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x, y: m.train_on_batch(x, y),
        lambda m, x, y: m.train_on_batch(x, y, sample_weight=WEIGHTS[8:16], return_dict=True),
        lambda m, x, y: m.train_on_batch(tf.constant(x), tf.constant(y), class_weight={1: 3.0}),
        lambda m, x, y: m.test_on_batch(x, y),
        lambda m, x, y: m.test_on_batch(x, y, sample_weight=WEIGHTS[8:16], return_dict=True),
        lambda m, x, y: m.predict_on_batch(x.astype("float64")),
    ],
    ids=["train", "train_weights", "train_class_weight", "test", "test_weights", "predict"],
)
def test_single_batches_equal_stock(pair, data, call):
    x, y = data[0][:8], data[1][:8]
    expected, actual = (call(model, x, y) for model in pair)
    assert_same(actual, expected)
    assert tree.map_structure(type, actual) == tree.map_structure(type, expected)
    assert_same(pair[1].get_weights(), pair[0].get_weights())


# Kinds of models


def multiple_inputs_and_outputs():
    one, two = keras.Input([6], name="one"), keras.Input([6], name="two")
    hidden = keras.layers.Concatenate()([keras.layers.Dense(4)(one), two])
    outputs = {
        "kind": keras.layers.Dense(3, name="kind")(hidden),
        "size": keras.layers.Dense(1, name="size")(hidden),
    }
    model = keras.Model({"one": one, "two": two}, outputs)
    model.compile(
        "sgd",
        loss={"kind": LOSS, "size": "mse"},
        loss_weights={"kind": 1.0, "size": 0.5},
        metrics={"kind": ["accuracy"], "size": ["mae"]},
        steps_per_execution=2,
        jit_compile=False,
    )
    return model


def test_a_functional_model_of_dicts(twins, data):
    pair = twins(multiple_inputs_and_outputs)
    x, y = data
    inputs, labels = {"one": x, "two": x[::-1].copy()}, {"kind": y, "size": x[:, :1]}
    fit_same(*pair, inputs, labels, batch_size=8, epochs=2, validation_data=(inputs, labels))
    fit_same(*pair, batched((inputs, labels)))
    expected, actual = (model.predict(inputs, batch_size=8, verbose=0) for model in pair)
    assert_same(actual, expected)


def test_a_functional_model_of_lists(twins, data):
    def build():
        inputs = [keras.Input([6]), keras.Input([6])]
        outputs = [
            keras.layers.Add(name="sum")(inputs),
            keras.layers.Dense(1, name="dense")(inputs[0]),
        ]
        model = keras.Model(inputs, outputs)
        model.compile("sgd", ["mse", "mse"], steps_per_execution=2, jit_compile=False)
        return model

    pair = twins(build)
    x = data[0]
    fit_same(*pair, [x, -x], [x, x[:, :1]], batch_size=8)
    expected, actual = (model.predict([x, -x], batch_size=8, verbose=0) for model in pair)
    assert_same(actual, expected)


class Regularised(keras.Model):
    """Not built; normalises, drops and adds losses."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(8, "relu", kernel_regularizer="l2")
        self.normalization = keras.layers.BatchNormalization(momentum=0.5)
        self.dropout = keras.layers.Dropout(0.4)
        self.activity = keras.layers.ActivityRegularization(l2=0.1)
        self.outputs_ = keras.layers.Dense(3)

    def call(self, inputs, training=False):
        hidden = self.normalization(self.dense(inputs), training=training)
        hidden = self.activity(self.dropout(hidden, training=training))
        self.add_loss(0.01 * tf.reduce_mean(hidden**2))
        return self.outputs_(hidden)


def test_a_subclassed_model_with_state_randomness_and_losses(twins, data):
    def build():
        model = Regularised()
        model.compile("adam", LOSS, steps_per_execution=4)
        return model

    stock, model = twins(build)
    histories = []
    for one in (stock, model):
        # The weights are drawn here, and the order of the samples.
        keras.utils.set_random_seed(5)
        fit = one.fit(*data, batch_size=8, epochs=3, verbose=0, validation_data=data)
        histories.append(fit.history)
    assert_same(histories[1], histories[0])
    assert_same(model.get_weights(), stock.get_weights())
    assert devices_of([*model.variables, *model.optimizer.variables]) == {"IPU:0"}
    keras.utils.set_random_seed(5)
    again = model.fit(*data, batch_size=8, verbose=0).history
    assert again["loss"] != histories[1]["loss"][:1]


def test_nested_models_with_regularizers(twins, data):
    def build():
        inner = keras.Sequential(
            [keras.layers.Dense(4, kernel_regularizer="l1"), keras.layers.BatchNormalization()]
        )
        inputs = keras.Input([6])
        model = keras.Model(inputs, keras.layers.Dense(3)(inner(inputs)))
        model.compile(
            "adam", LOSS, weighted_metrics=["accuracy"], steps_per_execution=2, jit_compile=False
        )
        return model

    fit_same(*twins(build), *data, batch_size=8, epochs=2, sample_weight=WEIGHTS)


class Positive(keras.metrics.Metric):
    def __init__(self, name="positive"):
        super().__init__(name=name)
        self.count = self.add_weight(initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.count.assign_add(tf.reduce_sum(tf.cast(y_pred > 0.5, "float32")))

    def result(self):
        return self.count + 0.0


def test_metrics_of_all_kinds(twins, data):
    def mean_prediction(y_true, y_pred):
        return tf.reduce_mean(y_pred)

    def build():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1, "sigmoid")])
        model.compile(
            "sgd",
            "binary_crossentropy",
            metrics=[
                "accuracy",
                keras.metrics.AUC(name="auc"),
                keras.metrics.F1Score(threshold=0.5, name="f1"),
                Positive(),
                mean_prediction,
            ],
            weighted_metrics=[keras.metrics.BinaryAccuracy(name="weighted")],
            steps_per_execution=2,
            jit_compile=False,
        )
        return model

    labels = (data[1] > 0).astype("float32")[:, None]
    history = fit_same(
        *twins(build), data[0], labels, batch_size=8, epochs=2, sample_weight=WEIGHTS
    )
    names = {"loss", "accuracy", "auc", "f1", "positive", "mean_prediction", "weighted"}
    assert set(history.history) == names


class OwnSteps(keras.Model):
    """A model of steps only, as generative adversarial networks are: it has no `call`."""

    def __init__(self):
        super().__init__()
        self.first, self.second = keras.layers.Dense(6), keras.layers.Dense(1)
        self.seed = keras.random.SeedGenerator(3)
        self.mean = keras.metrics.Mean(name="mean")

    def compile(self, first, second):
        super().compile(jit_compile=False, steps_per_execution=2)
        self.first_optimizer, self.second_optimizer = first, second

    @property
    def metrics(self):
        return [self.mean]

    def run(self, inputs):
        noise = keras.random.normal([8, 6], seed=self.seed)
        return tf.reduce_mean(self.second(self.first(inputs) + noise) ** 2)

    def train_step(self, inputs):
        for layer, optimizer in (
            (self.first, self.first_optimizer),
            (self.second, self.second_optimizer),
        ):
            with tf.GradientTape() as tape:
                loss = self.run(inputs)
            gradients = tape.gradient(loss, layer.trainable_variables)
            optimizer.apply_gradients(zip(gradients, layer.trainable_variables, strict=True))
        self.mean.update_state(loss)
        return {"mean": self.mean.result(), "constant": 2.0, "count": tf.constant(3)}

    def test_step(self, inputs):
        return {"test": self.run(inputs)}

    def predict_step(self, inputs):
        return {"hidden": self.first(inputs), "nested": [tf.reduce_mean(inputs)]}


def test_steps_of_the_users_own(twins, data):
    def build():
        model = OwnSteps()
        model.compile(keras.optimizers.Adam(), keras.optimizers.SGD())
        return model

    pair = twins(build)
    dataset = batched(data[0])
    histories, outputs = [], []
    for model in pair:
        keras.utils.set_random_seed(5)
        fit = model.fit(dataset, epochs=2, shuffle=False, verbose=0, validation_data=dataset)
        histories.append(fit.history)
        outputs.append(model.predict(dataset, verbose=0))
    assert_same(histories[1], histories[0])
    assert_same(outputs[1], outputs[0])
    assert_same(pair[1].get_weights(), pair[0].get_weights())
    model = pair[1]
    optimizers = [*model.first_optimizer.variables, *model.second_optimizer.variables]
    assert devices_of([*model.variables, *optimizers]) == {"IPU:0"}


def test_a_symbolic_build_that_fails_is_only_forgiven_to_own_steps(strategy, data):
    class NoCall(keras.Model):
        pass

    with strategy.scope():
        model = NoCall()
        model.compile("sgd", "mse")
    with raises(RuntimeError, "Unable to automatically build the model."):
        model.fit(data[0], data[0], batch_size=8, verbose=0)


def test_mixed_precision(twins, data):
    def build():
        keras.config.set_dtype_policy("mixed_float16")
        try:
            return classifier(steps_per_execution=4)
        finally:
            keras.config.set_dtype_policy("float32")

    stock, model = twins(build)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    fit_same(stock, model, *data, batch_size=8, epochs=2, tolerance=1e-3)
    assert model.predict(data[0], batch_size=8, verbose=0).dtype == "float16"


def test_schedules_and_momentum(twins, data):
    def build():
        schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 5, 0.5)
        return classifier(
            optimizer=keras.optimizers.SGD(schedule, momentum=0.9, clipnorm=1.0),
            steps_per_execution=4,
        )

    fit_same(*twins(build), *data, batch_size=8, epochs=2)


def test_changes_between_fits(twins, data):
    """The learning rate is a variable; what is trainable takes effect with `compile`."""
    pair = twins(classifier, steps_per_execution=2)
    for model in pair:
        model.fit(*data, batch_size=8, shuffle=False, verbose=0)
        model.optimizer.learning_rate = 0.5
    fit_same(*pair, *data, batch_size=8)
    for model in pair:
        model.layers[0].trainable = False
        model.compile("sgd", LOSS, metrics=["accuracy"], steps_per_execution=2, jit_compile=False)
    kernel = pair[1].get_weights()[0]
    fit_same(*pair, *data, batch_size=8)
    np.testing.assert_array_equal(pair[1].layers[0].get_weights()[0], kernel)


def test_summaries_are_alike(pair):
    def lines(model):
        printed = []
        model.summary(print_fn=lambda line, line_break=True: printed.append(line))
        return re.sub(r"(dense|sequential)(_\d+)?|[━─]+| +", "", "\n".join(printed))

    stock, model = pair
    assert lines(model) == lines(stock)
    assert "Total params:" in lines(model).replace("Totalparams", "Total params")


# What is made outside of the scope


def test_compiling_outside_the_scope(strategy, data, twins):
    stock, inside = twins(classifier, optimizer="adam", steps_per_execution=2)
    with strategy.scope():
        model = keras.models.clone_model(inside)
    model.compile("adam", LOSS, metrics=["accuracy"], steps_per_execution=2, jit_compile=False)
    model.set_weights(stock.get_weights())
    fit_same(stock, model, *data, batch_size=8)
    assert devices_of([*model.variables, *model.optimizer.variables]) == {"IPU:0"}


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_an_optimizer_and_metrics_that_were_made_outside_the_scope(strategy, data, policy):
    keras.config.set_dtype_policy(policy)
    try:
        with strategy.scope():
            model = keras.Sequential([keras.Input([6]), keras.layers.Dense(3)])
        optimizer = keras.optimizers.Adam()
        model.compile(optimizer, LOSS, metrics=[keras.metrics.SparseCategoricalAccuracy()])
    finally:
        keras.config.set_dtype_policy("float32")
    model.fit(*data, batch_size=8, verbose=0)
    assert int(model.optimizer.iterations) == 8
    moments = [v for v in optimizer.variables if "momentum" in v.path or "velocity" in v.path]
    assert len(moments) == 4
    assert devices_of([*model.variables, *moments]) == {"IPU:0"}


def test_a_step_on_the_device_may_use_variables_of_the_cpu(strategy, data):
    with strategy.scope():
        model = classifier()
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, LOSS, jit_compile=False)
    model.fit(*data, batch_size=8, verbose=0)
    assert "CPU:0" in devices_of(optimizer.variables)
    assert int(optimizer.iterations) == 8


# Where it runs


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_programs_run_on_the_device_wherever_they_are_called_from(
    strategy, pair, data, device, executed, inside
):
    _, model = pair
    x, y = data
    with strategy.scope() if inside else tf.device(None):
        model.fit(x, y, batch_size=8, epochs=2, verbose=0)
        fitted = device.counters()
        model.evaluate(x, y, batch_size=8, verbose=0)
        model.predict(x, batch_size=8, verbose=0)
        model.train_on_batch(x, y)
    assert executed("train") == (9, 17)
    assert executed("test") == (4, 8)
    assert executed("predict") == (4, 8)
    programs = {
        name: count for name, count in device.counters().program_executions.items() if count
    }
    assert sum(programs.values()) == 17
    for name in ("train", "test", "predict"):
        assert any(name in program for program in programs)
    # Only the data of the programs goes to the device, not the dataset on its way there.
    copied = fitted.num_bytes_to_device - 2 * (x.nbytes + y.nbytes)
    assert 0 <= copied < 1000
    assert fitted.num_bytes_from_device < 1000
    assert {v.value.device for v in model.variables} == {IPU}
    assert {v.value.device for v in model.optimizer.variables} == {IPU}


def test_a_model_on_another_device(data, strategy):
    with IPUStrategy("/device:IPU:1").scope():
        model = classifier()
    engine = model.distribute_strategy.device.engine
    before, steps_before = strategy.device.counters(), engine.counters().num_steps.get("train", 0)
    model.fit(*data, batch_size=8, verbose=0)
    assert devices_of(model.variables) == {"IPU:1"}
    assert engine.counters().num_steps["train"] == steps_before + 8
    assert strategy.device.counters() == before


def test_a_program_is_compiled_once_per_format_of_the_data(pair, data):
    _, model = pair
    model.make_train_function(force=True)
    for _ in range(2):
        model.fit(*data, batch_size=8, epochs=2, verbose=0)
    assert len(model.train_function.executables) == 1
    model.fit(*data, batch_size=16, verbose=0)
    assert len(model.train_function.executables) == 2


def method(self, x, y=2, *, z=3, **kwargs):
    pass


def test_arguments_are_bound_by_name_with_their_defaults():
    arguments = Arguments(method)
    assert arguments.bound(None, [1], {"z": 4}) == {"x": 1, "y": 2, "z": 4}
    assert arguments.bound(None, [], {"x": 1, "_own": 5}) == {"x": 1, "y": 2, "z": 3, "_own": 5}


def test_arguments_that_the_method_does_not_take():
    with pytest.raises(TypeError, match=r"^missing a required argument: 'x'$"):
        Arguments(method).bound(None, [], {})

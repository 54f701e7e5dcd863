"""Pipelined models compute what the same models do without a pipeline."""

import contextlib
import re
from itertools import permutations

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import LOSS, assert_same
from plain_training import train

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER, device_for
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras.extensions import PipelineStage
from ipu_keras.machine.system import SYSTEM
from ipu_keras.pipelining_ops import PipelineSchedule
from ipu_keras.program import OutfeedMode


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


@pytest.fixture(scope="module", autouse=True)
def devices():
    """/device:IPU:0, 1 and 2 with two, four and eight IPUs."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = [2, 4, 8]
    config.configure_ipu_system()
    yield
    SYSTEM.reset()


def scope(num_ipus):
    return IPUStrategy(f"/device:IPU:{(2, 4, 8).index(num_ipus)}").scope()


def sequential(num_stages):
    return keras.Sequential(
        [
            keras.Input([6]),
            *(keras.layers.Dense(5, "tanh") for _ in range(num_stages - 1)),
            keras.layers.Dense(3),
        ]
    )


def skipping(num_stages):
    """Two inputs, a layer that is called twice, a result that skips stages, two outputs."""
    x = keras.Input([6], name="x")
    (first, _, *rest), shared = range(num_stages), keras.layers.Dense(4, "tanh")
    with PipelineStage(first):
        hidden = keras.layers.Dense(4)(x)
        kept = shared(hidden)
    with PipelineStage(1):
        hidden = shared(kept)
    for stage in rest:
        with PipelineStage(stage):
            hidden = keras.layers.Dense(4, "tanh")(hidden)
    with PipelineStage(num_stages - 1):
        joined = keras.layers.Concatenate()([hidden, kept])
        return keras.Model(x, keras.layers.Dense(3)(joined))


class Subclass(keras.Model):
    """Three layers in three stages."""

    def __init__(self):
        super().__init__()
        self.parts = [keras.layers.Dense(5, "tanh"), keras.layers.Dense(5), keras.layers.Dense(3)]

    def call(self, x):
        for stage, layer in enumerate(self.parts):
            with PipelineStage(stage):
                x = layer(x)
        return x


def optimizer(kind):
    return keras.optimizers.Adam(0.01) if kind == "adam" else keras.optimizers.SGD(0.1, 0.9)


def trained_alike(model, stock, data, kind, *, count, num_replicas=1):
    model.fit(*data, batch_size=2, epochs=3, shuffle=False, verbose=0)
    train(
        stock,
        LOSS,
        optimizer(kind),
        *data,
        batch_size=2,
        batches_per_update=count * num_replicas,
        epochs=3,
    )
    assert_same(model.get_weights(), stock.get_weights())


# Of all combinations, those in which each two choices meet.
@pytest.mark.parametrize(
    ("schedule", "num_stages", "num_ipus", "kind"),
    [
        (schedule, *stages, ("sgd", "adam")[(row + column) % 2])
        for row, schedule in enumerate(PipelineSchedule)
        for column, stages in enumerate([(2, 2), (3, 4), (5, 8)])
    ],
)
def test_sequential_models(data, schedule, num_stages, num_ipus, kind):
    keras.utils.set_random_seed(1)
    stock = sequential(num_stages)
    with scope(num_ipus):
        model = sequential(num_stages)
    model.set_weights(stock.get_weights())
    model.set_pipeline_stage_assignment(list(range(num_stages)))
    count = {2: 8, 3: 12, 5: 10}[num_stages]
    x, y = (np.concatenate([part, part])[: 4 * count] for part in data)
    model.compile(optimizer(kind), LOSS, steps_per_execution=2 * count)
    model.set_pipelining_options(count, pipeline_schedule=schedule)
    trained_alike(model, stock, (x, y), kind, count=count)


@pytest.mark.parametrize("schedule", [PipelineSchedule.Grouped, PipelineSchedule.Sequential])
@pytest.mark.parametrize("num_stages", [2, 3])
def test_layers_that_are_shared_and_results_that_skip_stages(data, schedule, num_stages):
    with scope(2):
        keras.utils.set_random_seed(1)
        stock = keras.models.Model.from_config(skipping(num_stages).get_config())
        model = skipping(num_stages)
    stock.set_weights(model.get_weights())
    count = 2 * num_stages
    x, y = (part[: 4 * count] for part in data)
    model.compile(optimizer("sgd"), LOSS, steps_per_execution=2 * count)
    # The stages of the shared layer must be on one IPU.
    model.set_pipelining_options(
        count,
        device_mapping=[0, 0, 1][:num_stages] if num_stages > 2 else [1, 1],
        pipeline_schedule=schedule,
    )
    trained_alike(model, stock, (x, y), "sgd", count=count)


def test_a_subclass_of_model(data):
    with scope(4):
        model = Subclass()
    stock = sequential(3)
    model.compile(optimizer("sgd"), LOSS, steps_per_execution=6)
    model.set_pipelining_options(6)
    x, y = (part[:24] for part in data)
    model.predict(x, batch_size=2, verbose=0)
    weights = model.get_weights()
    stock = keras.Sequential(
        [keras.Input([6]), *(type(p).from_config(p.get_config()) for p in model.parts)]
    )
    stock.set_weights(weights)
    trained_alike(model, stock, (x, y), "sgd", count=6)


def test_several_replicas_of_a_pipeline(data):
    keras.utils.set_random_seed(1)
    stock = sequential(2)
    with scope(8):
        model = sequential(2)
    model.set_weights(stock.get_weights())
    model.set_pipeline_stage_assignment([0, 1])
    model.compile(optimizer("sgd"), LOSS, steps_per_execution=4)
    model.set_pipelining_options(4)
    # Eight IPUs are four replicas of two stages.
    trained_alike(model, stock, data, "sgd", count=4, num_replicas=4)
    (executable,) = model.train_function.executables
    assert executable.program.num_replicas == 4
    assert executable.program.pipeline.device_mapping == (0, 1)


def test_several_inputs_and_outputs(data):
    def build():
        a, b = keras.Input([3], name="a"), keras.Input([3], name="b")
        with PipelineStage(0):
            first = keras.layers.Dense(4, "tanh")(a)
        with PipelineStage(1):
            joined = keras.layers.Concatenate()([first, b])
            early = keras.layers.Dense(1, name="early")(joined)
        with PipelineStage(2):
            late = keras.layers.Dense(2, name="late")(keras.layers.Concatenate()([joined, early]))
        return keras.Model([a, b], [early, late])

    with scope(4):
        keras.utils.set_random_seed(1)
        model = build()
    stock = keras.Model.from_config(model.get_config())
    stock.set_weights(model.get_weights())
    model.compile(optimizer("sgd"), ["mse", "mae"], steps_per_execution=6)
    model.set_pipelining_options(6)
    x, _ = data
    inputs = [x[:48, :3], x[:48, 3:]]
    labels = [x[:48, :1], x[:48, 1:3]]
    model.fit(inputs, labels, batch_size=4, epochs=2, shuffle=False, verbose=0)
    reference = optimizer("sgd")
    weights, waiting = stock.trainable_weights, []
    for start in [*range(0, 48, 4)] * 2:
        batch = slice(start, start + 4)
        with tf.GradientTape() as tape:
            early, late = stock([part[batch] for part in inputs], training=True)
            squared = tf.reduce_mean((early - labels[0][batch]) ** 2)
            loss = squared + tf.reduce_mean(tf.abs(late - labels[1][batch]))
        waiting.append(tape.gradient(loss, weights))
        if len(waiting) == 6:
            reference.apply([tf.add_n(given) for given in zip(*waiting, strict=True)], weights)
            waiting = []
    assert_same(model.get_weights(), stock.get_weights())


# NumPy 2 has a keyword that TensorFlow's __array__ does not know yet; it warns on the CPU as well.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_training_goes_on_after_saving_and_loading(data, tmp_path):
    """Two replicas of two stages, with validation, callbacks and a model that is loaded."""

    def make():
        keras.utils.set_random_seed(1)
        with scope(4):
            model = sequential(2)
        model.set_pipeline_stage_assignment([0, 1])
        model.compile(optimizer("adam"), LOSS, metrics=["accuracy"], steps_per_execution=4)
        model.set_pipelining_options(4, accumulate_outfeed=True)
        return model

    def fit(model, **epochs):
        return model.fit(
            *data,
            batch_size=4,
            shuffle=False,
            verbose=0,
            validation_data=data,
            callbacks=[keras.callbacks.CSVLogger(tmp_path / "log.csv", append=True)],
            **epochs,
        )

    without_pause, paused = make(), make()
    whole = fit(without_pause, epochs=4)
    first = fit(paused, epochs=2)
    path = tmp_path / "paused.keras"
    paused.save(path)
    with scope(4):
        loaded = keras.models.load_model(path)
    second = fit(loaded, epochs=4, initial_epoch=2)
    assert loaded.get_pipeline_stage_assignment()[1].pipeline_stage == 1
    (executable,) = loaded.train_function.executables
    assert executable.program.accumulation.count == 4
    assert executable.program.num_replicas == 2
    assert set(whole.history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    for name, values in whole.history.items():
        assert values == first.history[name] + second.history[name]
    assert_same(loaded.get_weights(), without_pause.get_weights(), tolerance=0)


class Steps(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append((batch, float(logs["loss"])))

    on_test_batch_end = on_train_batch_end


def identity(num_ipus=2, **options):
    """The loss of a batch is its only element."""
    with scope(num_ipus):
        model = keras.Sequential(
            [keras.Input([1]), keras.layers.Rescaling(1.0), keras.layers.Rescaling(1.0)]
        )
    model.compile(loss=lambda y, outputs: outputs, **options)
    model.set_pipeline_stage_assignment([0, 1])
    return model


@pytest.mark.parametrize("asynchronous", [False, True])
def test_accumulated_metrics_of_evaluation(asynchronous):
    """The means of the losses of all steps so far, once for each execution."""
    model = identity(steps_per_execution=4)
    model.set_pipelining_options(4, accumulate_outfeed=True)
    model.set_asynchronous_callbacks(asynchronous)
    x = np.arange(8, dtype=np.float32).reshape(8, 1)
    steps = Steps()
    loss = model.evaluate(x, x, batch_size=1, verbose=0, callbacks=[steps])
    assert steps.seen == [(3, 1.5), (7, 3.5)]
    assert loss == 3.5


def test_accumulated_metrics_of_training():
    """Once for an execution of two weight updates, in the type of the accumulators."""
    with scope(2):
        model = keras.Sequential(
            [
                keras.Input([1]),
                keras.layers.Dense(1, kernel_initializer="zeros"),
                keras.layers.Rescaling(1.0),
            ]
        )
    model.compile(keras.optimizers.SGD(0.0), "mse", steps_per_execution=8)
    model.set_pipeline_stage_assignment([0, 1])
    model.set_pipelining_options(4, accumulate_outfeed=True, accumulate_outfeed_dtype=tf.float16)
    y = np.sqrt(np.arange(8, dtype=np.float32)).reshape(8, 1)
    steps = Steps()
    model.fit(np.zeros((8, 1)), y, batch_size=1, shuffle=False, verbose=0, callbacks=[steps])
    ((batch, loss),) = steps.seen
    assert batch == 7
    np.testing.assert_allclose(loss, 3.5, rtol=2e-3)


@pytest.mark.parametrize("num_ipus", [2, 4])
@pytest.mark.parametrize("count", [4, 8])
def test_accumulated_metrics_are_the_same_as_others(data, num_ipus, count):
    def logged(accumulate_outfeed):
        keras.utils.set_random_seed(1)
        with scope(num_ipus):
            model = sequential(2)
        model.compile(optimizer("sgd"), LOSS, metrics=["accuracy"], steps_per_execution=8)
        model.set_pipeline_stage_assignment([0, 1])
        model.set_pipelining_options(count, accumulate_outfeed=accumulate_outfeed)
        options = {"batch_size": 2, "verbose": 0}
        history = model.fit(*data, epochs=2, validation_data=data, shuffle=False, **options)
        return history.history, model.evaluate(*data, **options)

    assert logged(True) == logged(False)


# What makes the results of a program reach the host in each way, and what they are called then.
OUTFEED_MODES = {
    OutfeedMode.ALL: ({"asynchronous": True, "accumulate_outfeed": False}, "of all steps"),
    OutfeedMode.LAST: ({"asynchronous": True, "accumulate_outfeed": True}, "of the last step"),
}


@pytest.mark.parametrize(("before", "after"), list(permutations(OUTFEED_MODES, 2)))
def test_other_results_of_a_program(caplog, before, after):
    """Programs that return something else are compiled again, which the user is told."""
    with scope(2):
        model = sequential(2)
    model.compile("sgd", LOSS, steps_per_execution=4)
    model.set_pipeline_stage_assignment([0, 1])
    for mode in (before, after):
        options, _ = OUTFEED_MODES[mode]
        model.set_asynchronous_callbacks(options["asynchronous"])
        model.set_pipelining_options(4, accumulate_outfeed=options["accumulate_outfeed"])
        model.fit(np.zeros((8, 6)), np.zeros(8), batch_size=2, verbose=0)
        assert device_for(0).engine.loaded.program.outfeed_mode is mode
    assert [record.getMessage() for record in caplog.records] == [
        f"Program 'train' is compiled again: the results {OUTFEED_MODES[after][1]} are returned "
        f"instead of those {OUTFEED_MODES[before][1]}."
    ]


def test_what_a_pipeline_needs(data):
    x, y = data
    with scope(2):
        model = sequential(3)
    model.compile("sgd", LOSS, steps_per_execution=6)
    model.set_pipeline_stage_assignment([0, 1, 2])
    before = model.get_weights()
    with raises(
        ValueError, "Current device has 2 IPUs attached, however the current model requires a mul"
    ):
        model.fit(x[:48], y[:48], batch_size=4, verbose=0)
    with scope(4):
        model = sequential(3)
    model.compile("sgd", LOSS, steps_per_execution=4)
    model.set_pipeline_stage_assignment([0, 1, 2])
    with raises(
        ValueError, "The model which you are attempting to train is pipelined, however `grad"
    ):
        model.fit(x[:48], y[:48], batch_size=4, verbose=0)
    model.set_pipelining_options(6)
    with raises(
        RuntimeError, "The pipelined model has been configured to use gradient accumulation"
    ):
        model.fit(x[:48], y[:48], batch_size=4, verbose=0)
    model.set_pipelining_options(4)
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="must be a multiple of 6, but it is 4"
    ):
        model.fit(x[:48], y[:48], batch_size=4, verbose=0)
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="must be a multiple of 3, but it is 4"
    ):
        model.predict(x[:48], batch_size=4, verbose=0)
    assert int(model.optimizer.iterations) == 0
    assert len(before) == 6


def test_an_accumulation_that_does_not_divide_an_execution(data):
    with scope(2):
        model = sequential(2)
    model.compile("sgd", LOSS, steps_per_execution=4)
    model.set_gradient_accumulation_options(3)
    with raises(
        RuntimeError,
        "The model has been configured to use gradient accumulation for training, however the "
        "current `steps_per_execution` value (set to 4) is not divisible by "
        "`gradient_accumulation_steps_per_replica` (3).",
    ):
        model.fit(*data, batch_size=8, verbose=0)
    assert int(model.optimizer.iterations) == 0


def test_a_train_step_of_ones_own_is_refused(data):
    class Own(keras.Sequential):
        def train_step(self, data):
            return super().train_step(data)

    with scope(2):
        model = Own([keras.Input([6]), keras.layers.Dense(3)], name="own")
    model.compile("sgd", LOSS, steps_per_execution=2)
    model.set_gradient_accumulation_options(2)
    with raises(RuntimeError, "The function `train_step` for the model own has been overridden."):
        model.fit(*data, batch_size=8, verbose=0)


def staged_functional(stages):
    inputs = x = keras.Input([6])
    for index, stage in enumerate(stages):
        layer = keras.layers.Dense(6, name=f"layer_{index}")
        with contextlib.nullcontext() if stage is None else PipelineStage(stage):
            x = layer(x)
    return keras.Model(inputs, x)


class StagedSubclass(keras.Model):
    def __init__(self, stages):
        super().__init__()
        self.stages = stages
        self.parts = [keras.layers.Dense(6, name=f"layer_{i}") for i in range(len(stages))]

    def call(self, x):
        for layer, stage in zip(self.parts, self.stages, strict=True):
            with contextlib.nullcontext() if stage is None else PipelineStage(stage):
                x = layer(x)
        return x


@pytest.mark.parametrize("kind", [staged_functional, StagedSubclass])
@pytest.mark.parametrize("num_ipus", [2, 4])
@pytest.mark.parametrize("stages", [(0, None), (None, 0), (0, 1, None), (0, None, 7), (1, 0, None)])
def test_a_layer_without_a_stage_before_anything_else(kind, num_ipus, stages):
    """Of stages that are not complete it is not known how many IPUs they need."""
    with scope(num_ipus):
        model = kind(stages)
        model.compile("sgd", "mse", steps_per_execution=8, jit_compile=False)
    model.set_pipelining_options(8)
    x = np.zeros((16, 6), np.float32)
    message = (
        "All layers of a pipelined model must have an associated pipeline stage. However, "
        f"layer_{stages.index(None)} has not been assigned to one. "
    )
    for call in (
        lambda: model.fit(x, x, batch_size=2, verbose=0),
        lambda: model.evaluate(x, x, batch_size=2, verbose=0),
        lambda: model.predict(x, batch_size=2, verbose=0),
    ):
        with raises(ValueError, message):
            call()
    assert int(model.optimizer.iterations) == 0


@pytest.mark.filterwarnings("ignore:.build... was called on layer:UserWarning")
def test_a_subclass_of_which_keras_has_noted_the_shape_only():
    with scope(2):
        model = StagedSubclass((0, 1))
        model.compile("sgd", "mse", steps_per_execution=8, jit_compile=False)
    model.build((2, 6))
    model.set_pipelining_options(8)
    x = np.ones((16, 6), np.float32)
    model.fit(x, x, batch_size=2, verbose=0)
    # One replica of two stages, not two replicas without.
    assert model._ipu.num_replicas == 1
    assert int(model.optimizer.iterations) == 1


def test_batch_normalization_in_a_pipeline(recwarn):
    def built(normalization, **options):
        with scope(2):
            inputs = keras.Input([6])
            with PipelineStage(0):
                block = keras.Sequential([keras.layers.Dense(5), normalization(**options)])
                x = block(inputs)
            with PipelineStage(1):
                model = keras.Model(inputs, keras.layers.Dense(3)(x), name="mine")
            model.compile("sgd", "mse", steps_per_execution=8, jit_compile=False)
        model.set_pipelining_options(8)
        return model

    x, y = np.ones((16, 6), np.float32), np.ones((16, 3), np.float32)
    norm = keras.layers.BatchNormalization
    model = built(norm, name="norm")
    model.evaluate(x, y, batch_size=2, verbose=0)
    model.predict(x, batch_size=2, verbose=0)
    for other in (built(norm, trainable=False), built(keras.layers.LayerNormalization)):
        other.fit(x, y, batch_size=2, verbose=0)
    assert not recwarn.list
    message = (
        "The pipelined model mine has BatchNormalization layers: norm. They normalize each batch "
        "that goes through the pipeline by its own statistics, not by those of all that make a "
        "weight update, and update their moving averages with each. "
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}"):
        model.fit(x, y, batch_size=2, verbose=0)
    # Once for each batch, not for each weight update.
    momentum, mean = norm().momentum, model.layers[1].layers[1].moving_mean
    assert int(model.optimizer.iterations) == 1
    expected = np.ones((1, 6)) @ np.asarray(model.layers[1].layers[0].kernel.numpy())
    assert mean.shape == expected[0].shape
    assert not np.allclose(mean.numpy(), (1 - momentum) * expected[0], rtol=0.2)
    model.reset_pipeline_stage_assignment()
    recwarn.clear()
    model.fit(x, y, batch_size=1, verbose=0)
    assert not recwarn.list

import doctest
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import LOSS, assert_same, devices_of
from plain_training import train

import ipu_keras
from ipu_keras.keras import Model, PipelineModel, PipelineSequential, PipelineStage
from ipu_keras.keras.legacy import pipeline_model, pipeline_sequential
from ipu_keras.pipelining_ops import PipelineSchedule, PipelineStageOptions, RecomputationMode


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


@pytest.mark.parametrize("module", [pipeline_model, pipeline_sequential])
def test_the_examples(no_system, module):
    assert doctest.testmod(module).failed == 0


def stock_model():
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [keras.Input([6]), keras.layers.Dense(5, "tanh"), keras.layers.Dense(3)]
    )


def functional(**options):
    inputs = keras.Input([6])
    with PipelineStage(0):
        x = keras.layers.Dense(5, "tanh")(inputs)
    with PipelineStage(1):
        outputs = keras.layers.Dense(3)(x)
    return PipelineModel(inputs, outputs, **options)


def sequential(**options):
    stages = [[keras.Input([6]), keras.layers.Dense(5, "tanh")], [keras.layers.Dense(3)]]
    return PipelineSequential(stages, **options)


def compiled(model, optimizer="sgd"):
    model.compile(optimizer, LOSS, metrics=["accuracy"], jit_compile=False)
    return model


@pytest.mark.parametrize(
    ("build", "schedule", "num_ipus"),
    # Each pair of a schedule and a number of replicas, and the two ways to build in turns.
    [
        ((functional, sequential)[(k + num_ipus // 2) % 2], schedule, num_ipus)
        for k, schedule in enumerate(PipelineSchedule)
        for num_ipus in (2, 4)
    ],
)
def test_training_evaluation_and_prediction(strategies, data, build, schedule, num_ipus):
    stock, num_replicas = stock_model(), num_ipus // 2
    options = {"gradient_accumulation_count": 4, "pipeline_schedule": schedule}
    with strategies[num_ipus].scope():
        model = compiled(build(**options), keras.optimizers.SGD(0.02, 0.9))
        model.set_weights(stock.get_weights())
        model.fit(*data, batch_size=2, epochs=3, shuffle=False, verbose=0)
        results = model.evaluate(*data, batch_size=8 // num_replicas, verbose=0)
        outputs = model.predict(data[0], batch_size=4, verbose=0)
    train(
        stock,
        LOSS,
        keras.optimizers.SGD(0.02, 0.9),
        *data,
        batch_size=2,
        batches_per_update=4 * num_replicas,
        epochs=3,
    )
    assert_same(model.get_weights(), stock.get_weights())
    assert_same(outputs, stock.predict(data[0], verbose=0))
    if num_replicas == 1:  # else they are those of the last replica
        assert_same(results, compiled(stock).evaluate(*data, verbose=0))
    assert int(model.optimizer.iterations) == 3 * 8 // num_replicas


@pytest.mark.parametrize("build", [functional, sequential])
def test_callbacks_and_history_count_executions_of_the_pipeline(
    strategies, data, build, steps, capsys
):
    with strategies[2].scope():
        model = compiled(build(gradient_accumulation_count=4))
        history = model.fit(*data, batch_size=2, epochs=2, validation_data=data, callbacks=[steps])
        model.predict(data[0], batch_size=8, verbose=0, callbacks=[steps])
        dataset = tf.data.Dataset.from_tensor_slices(data[0]).batch(8, drop_remainder=True)
        assert len(model.predict(dataset.repeat(), steps=3, verbose=0)) == 3 * 4 * 8
    epoch = [("begin", 0, 8), ("end", 7, 8), ("test", 7, 8)]
    assert steps.seen == [*epoch, *epoch, ("predict", 1, 2)]
    assert history.params["steps"] == 8
    assert len(history.history["loss"]) == len(history.history["val_loss"]) == 2
    assert "8/8" in capsys.readouterr().out


@pytest.mark.parametrize("build", [functional, sequential])
@pytest.mark.parametrize("num_ipus", [2, 4])
def test_steps_are_executions_of_all_pipelines(strategies, data, build, num_ipus):
    batches = tf.data.Dataset.from_tensor_slices(data).batch(1, drop_remainder=True)
    with strategies[num_ipus].scope():
        model = compiled(build(gradient_accumulation_count=16))
        history = model.fit(batches, epochs=2, steps_per_epoch=2, shuffle=False, verbose=0)
        # 2 steps of 16 batches, however many replicas share them.
        inputs = batches.take(32).map(lambda x, y: (x,))
        assert len(model.predict(inputs, steps=2, verbose=0)) == 32
    num_replicas = num_ipus // 2
    assert history.params["steps"] == 2 // num_replicas
    assert int(model.optimizer.iterations) == 4 // num_replicas


def test_options_reach_the_pipeline(strategies, data):
    options = [PipelineStageOptions({"availableMemoryProportion": "0.3"})] * 2
    with strategies[2].scope():
        model = sequential(
            gradient_accumulation_count=2,
            gradient_accumulation_dtype=tf.float32,
            device_mapping=(1, 0),
            pipeline_schedule=PipelineSchedule.Sequential,
            recomputation_mode=RecomputationMode.RecomputeAndBackpropagateInterleaved,
            forward_propagation_stages_poplar_options=options,
            backward_propagation_stages_poplar_options=options,
            weight_update_poplar_options=options[0],
            offload_weight_update_variables=True,
            replicated_optimizer_state_sharding=True,
            offload_activations=False,
            name="mine",
        )
    pipeline = model._ipu.stages.pipeline(training=True, num_steps=2)
    assert model.name == "mine"
    assert pipeline.device_mapping == (1, 0)
    assert pipeline.schedule is PipelineSchedule.Sequential
    assert pipeline.forward_options == pipeline.backward_options == tuple(options)
    assert pipeline.weight_update_options == options[0]
    assert pipeline.offload_weight_update_variables
    assert pipeline.replicated_optimizer_state_sharding
    assert pipeline.offload_activations is False


def test_accumulated_metrics(strategies, data):
    with strategies[2].scope():
        model = compiled(functional(gradient_accumulation_count=4, accumulate_outfeed=True))
        results = model.evaluate(*data, batch_size=8, verbose=0)
    stock = compiled(stock_model())
    stock.set_weights(model.get_weights())
    assert_same(results, stock.evaluate(*data, batch_size=8, verbose=0))


@pytest.mark.parametrize("build", [functional, sequential])
@pytest.mark.parametrize("options", [{}, {"accumulate_outfeed": True}])
def test_evaluation_equals_that_of_models_without_stages(strategies, data, build, options):
    """Of data whose batches differ, so that a mean of means is another number."""
    x = data[0] * np.linspace(0, 9, 64, dtype="float32")[:, None]
    y = x[:, :3] * 5 + 20
    stock = stock_model()
    stock.compile("sgd", "mse", metrics=["mae"])
    with strategies[2].scope():
        model = build(gradient_accumulation_count=4, **options)
        model.compile("sgd", "mse", metrics=["mae"], jit_compile=False)
        model.set_weights(stock.get_weights())
        found = model.evaluate(x, y, batch_size=4, verbose=0)
        batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(4, drop_remainder=True)
        # Steps are those of 4 batches.
        part = model.evaluate(batches, steps=3, verbose=0)
    with strategies[1].scope():
        inputs = keras.Input([6])
        hidden = keras.layers.Dense(5, "tanh")(inputs)
        plain = Model(inputs, keras.layers.Dense(3)(hidden), gradient_accumulation_count=4)
        plain.compile("sgd", "mse", metrics=["mae"], jit_compile=False)
        plain.set_weights(stock.get_weights())
        assert_same(plain.evaluate(x, y, batch_size=4, verbose=0), found)
    assert_same(found, stock.evaluate(x, y, batch_size=4, verbose=0))
    assert_same(part, stock.evaluate(x[:48], y[:48], batch_size=4, verbose=0))


@pytest.mark.parametrize("build", [functional, sequential])
def test_costs(strategies, build):
    with strategies[2].scope():
        model = compiled(build(gradient_accumulation_count=4))
    specs = tf.TensorSpec([8, 6]), tf.TensorSpec([8], tf.int32)
    assert "pipeline" in str(ipu_keras.profile(model, *specs)).lower()
    assert ipu_keras.profile(model, specs[0]).name == f"{model.name}.predict"


def test_no_trainable_variables_before_a_run(strategies, data):
    with strategies[2].scope():
        model = compiled(sequential(gradient_accumulation_count=4))
        with raises(ValueError, "Weights for model sequential_of_mine have not yet been created. "):
            model.name = "sequential_of_mine"
            _ = model.trainable_variables
        model.fit(*data, batch_size=8, verbose=0)
        assert devices_of(model.trainable_variables) == {"IPU:1"}
        assert len(functional(gradient_accumulation_count=4).trainable_variables) == 4


@pytest.mark.parametrize("build", [functional, sequential])
def test_not_in_training_loops_of_users(strategies, data, build):
    with strategies[2].scope():
        model = compiled(build(gradient_accumulation_count=4))
        message = (
            f"{type(model).__name__} can only be called through the `fit`, `evaluate` or `predict` "
        )
        with raises(ValueError, message):
            model(data[0])
        # TensorFlow puts the place in the user's function before it.
        with pytest.raises(ValueError, match=message):
            strategies[2].experimental_run_v2(tf.function(lambda: model(data[0])))
        with raises(NotImplementedError, "IPU Keras models do not support the `save` interface.\n"):
            model.save("model.keras")


@pytest.mark.parametrize("build", [functional, sequential])
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "gradient_accumulation_count must be specified.\nIt is how many batches "),
        (
            {"gradient_accumulation_count": -2},
            ValueError,
            "gradient_accumulation_count must be >= 0.\nIt is how many batches each replica takes ",
        ),
        (
            {"gradient_accumulation_count": 4, "device_mapping": 1},
            TypeError,
            "device_mapping argument needs to be a list or a tuple.\nReceived: device_mapping=1",
        ),
        (
            {"gradient_accumulation_count": 4, "device_mapping": [0, 1, 2]},
            ValueError,
            "Each stage must be mapped to an IPU: 3 mappings != 2 stages\nGive `device_mapping` ",
        ),
        (
            {"gradient_accumulation_count": 4, "device_mapping": ["0", "1"]},
            ValueError,
            "Expected `device_mapping` to be a list of integers.\nEach is the IPU of a stage, ",
        ),
        (
            {"gradient_accumulation_count": 4, "batch_serialization_iterations": 2},
            NotImplementedError,
            "Batch serialization is only supported with the `Sequential` schedule.\nPass ",
        ),
        (
            {
                "gradient_accumulation_count": 4,
                "batch_serialization_iterations": 2,
                "pipeline_schedule": PipelineSchedule.Sequential,
            },
            NotImplementedError,
            "`batch_serialization_iterations` above 1, which is experimental on hardware, is not ",
        ),
        (
            {"gradient_accumulation_count": 4, "batch_serialization_iterations": 0},
            ValueError,
            "`batch_serialization_iterations` must be a positive integer. Received: batch_",
        ),
        (
            {"gradient_accumulation_count": 4, "continuous_weight_updates": True},
            NotImplementedError,
            "Continuous weight updates are currently not supported.",
        ),
        (
            {
                "gradient_accumulation_count": 4,
                "replicated_optimizer_state_sharding": True,
                "offload_weight_update_variables": False,
            },
            ValueError,
            "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by ",
        ),
        (
            {"gradient_accumulation_count": 4, "outfeed_loss": True},
            ValueError,
            "Found `outfeed_loss` key in `pipelining_kwargs`. This argument is not compatible ",
        ),
        (
            {"gradient_accumulation_count": 4, "depth": 4},
            TypeError,
            "pipeline() has no argument 'depth'. Its arguments are: ",
        ),
    ],
)
def test_options_that_cannot_be(strategies, build, options, error, message):
    with strategies[4].scope(), raises(error, message):
        build(**options)


@pytest.mark.parametrize("kind", [PipelineModel, PipelineSequential])
def test_made_outside_of_a_scope(strategies, data, kind):
    inputs, (first, last) = keras.Input([6]), (keras.layers.Dense(5), keras.layers.Dense(3))
    if kind is PipelineModel:
        with raises(RuntimeError, "PipelineStage may only be used from within an IPUStrategy con"):
            functional(gradient_accumulation_count=4)
        with strategies[2].scope():
            with PipelineStage(0):
                hidden = first(inputs)
            with PipelineStage(1):
                outputs = last(hidden)
        model = PipelineModel(inputs, outputs, gradient_accumulation_count=4)
    else:
        model = PipelineSequential([[first], [last]], gradient_accumulation_count=4)
    model = compiled(model)
    message = f"{kind.__name__} can only be used on an IPU device.\nCall `fit`, `evaluate` and `pre"
    with raises(ValueError, message):
        model.fit(*data, batch_size=8, verbose=0)
    with strategies[2].scope():
        model.fit(*data, batch_size=8, verbose=0)
        assert len(model.predict(data[0], batch_size=8, verbose=0)) == 64
        assert devices_of(model.trainable_variables) == {"IPU:1"}
    assert int(model.optimizer.iterations) == 2


def test_too_few_ipus(strategies, data):
    with strategies[1].scope():
        model = compiled(sequential(gradient_accumulation_count=4))
        with raises(
            ValueError, "Current device has 1 IPUs attached, however the current model req"
        ):
            model.fit(*data, batch_size=8, verbose=0)


def test_a_depth_that_the_schedule_cannot_have(strategies, data):
    message = "The number of iterations of the pipeline must be a multiple of 4, but it is 2."
    with strategies[2].scope():
        model = compiled(sequential(gradient_accumulation_count=2))
        with pytest.raises(tf.errors.FailedPreconditionError, match=message):
            model.fit(*data, batch_size=8, verbose=0)


def staged(stages):
    inputs = x = keras.Input([6])
    for stage in stages:
        if stage is None:
            x = keras.layers.Dense(3)(x)
        else:
            with PipelineStage(stage):
                x = keras.layers.Dense(3)(x)
    return PipelineModel(inputs, x, gradient_accumulation_count=4)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            [0, 2, 4],
            "Pipeline stages in the graph need to be strictly increasing, found pipeline stages "
            "[0, 2, 4], however the following pipeline stages are missing [1, 3].\nCount ",
        ),
        (
            [1, 2],
            "Pipeline stages in the graph need to be strictly increasing, found pipeline stages "
            "[1, 2], however the following pipeline stages are missing [0].\nCount ",
        ),
        ([0, None], "All layers of a pipelined model must have an associated pipeline stage. How"),
        ([None], "All layers of a pipelined model must have an associated pipeline stage. How"),
        ([1, 0], "Layer "),
        ([0, 0], "Pipeline requires at least two computational stages.\nUse `Model` or `Sequentia"),
    ],
)
def test_stages_of_a_functional_model(strategies, stages, message):
    with strategies[4].scope(), raises(ValueError, message):
        staged(stages)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            None,
            "An IPU pipeline must take a non-empty list of stages, where each stage is a list of "
            "Keras Layers.\nReceived: stages=None",
        ),
        ([], "An IPU pipeline must take a non-empty list of stages, where each stage is a list of"),
        (
            [keras.layers.Dense(3), keras.layers.Dense(3)],
            "An IPU pipeline may only contain lists of stages, where each stage is a list of Keras"
            " Layers.\nReceived: <Dense ",
        ),
        ([[keras.layers.Dense(3)], [abs]], "An IPU pipeline may only contain lists of stages, whe"),
        ([[keras.layers.Dense(3)], []], "An IPU pipeline may only contain stages with at least on"),
        ([[keras.layers.Dense(3)]], "Pipeline requires at least two computational stages.\nUse "),
    ],
)
def test_stages_of_a_sequential_model(strategies, stages, message):
    with strategies[2].scope(), raises(ValueError, message):
        PipelineSequential(stages, gradient_accumulation_count=4)


def test_stages_of_a_sequential_model_stay(strategies):
    with strategies[2].scope():
        model = sequential(gradient_accumulation_count=4)
        with raises(NotImplementedError, "PipelineSequential does not support `add`: the stages "):
            model.add(keras.layers.Dense(1))
        with raises(NotImplementedError, "PipelineSequential does not support `pop`: the stages "):
            model.pop()
    stages = [assignment.pipeline_stage for assignment in model.get_pipeline_stage_assignment()]
    assert stages == [0, 1]

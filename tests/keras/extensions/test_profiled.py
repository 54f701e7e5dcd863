"""What is profiled of a model is the program that `fit`, `evaluate` and `predict` run."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import last_report, profile, what_if
from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras import PipelineStage
from ipu_keras.machine.system import SYSTEM
from ipu_keras.pipelining_ops import PipelineSchedule

X, Y = np.ones((128, 16), np.float32), np.zeros((128, 4), np.float32)
SPECS = tf.TensorSpec((4, 16)), tf.TensorSpec((4, 4))
METHODS = {"train": "fit", "test": "evaluate", "predict": "predict"}


@pytest.fixture(scope="module", autouse=True)
def devices():
    """Devices of one, two and four IPUs."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = [1, 2, 4]
    # Groups of two replicas share the statistics of batches.
    config.norms.experimental.distributed_batch_norm_replica_group_size = 2
    config.configure_ipu_system()
    yield
    SYSTEM.reset()


class OwnStep(keras.Sequential):
    """Doubles the loss, in a step whose parts nobody knows."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = 2 * self.compute_loss(x, y, self(x, training=True))
        weights = self.trainable_weights
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


def perceptron(kind=keras.Sequential):
    return kind([keras.Input((16,)), *map(keras.layers.Dense, (16, 16, 4))])


def normalized():
    return keras.Sequential(
        [keras.Input((16,)), keras.layers.BatchNormalization(), keras.layers.Dense(4)]
    )


def unbuilt():
    """Its stages are those of scopes, and are known when it is built."""
    model = keras.Sequential()
    for stage in range(2):
        with PipelineStage(stage):
            model.add(keras.layers.Dense(4))
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    return model


def accumulating(**options):
    def make():
        model = perceptron()
        model.set_gradient_accumulation_options(4, **options)
        return model

    return make


def pipelined(**options):
    def make():
        model = perceptron()
        model.set_pipeline_stage_assignment([0, 0, 1])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, **options)
        return model

    return make


def ran_and_profiled(make, ordinal, mode, **compiled):
    """The report of what ran, and the one of a twin that never did."""
    with IPUStrategy(f"/device:IPU:{ordinal}").scope():
        models = [make(), make()]
    for model in models:
        model.name = "twin"
        model.compile("adam", "mse", **{"steps_per_execution": 8, **compiled})
    specs = SPECS[: 1 if mode == "predict" else 2]
    data = (X, Y)[: len(specs)]
    getattr(models[0], METHODS[mode])(*data, batch_size=4, verbose=0)
    return last_report(ordinal), profile(models[1], *specs, mode=mode)


def costs(report):
    return [(row.family, row.stage, row.ipu, row.cycles, row.flops) for row in report.rows]


@pytest.mark.parametrize("mode", METHODS)
@pytest.mark.parametrize(
    ("make", "ordinal"),
    [
        (perceptron, 0),
        (perceptron, 1),
        (normalized, 1),
        (accumulating(), 0),
        (accumulating(dtype="float16"), 1),
        (pipelined(), 1),
        (pipelined(pipeline_schedule=PipelineSchedule.Interleaved), 2),
        (unbuilt, 1),
        (lambda: perceptron(OwnStep), 0),
        (lambda: perceptron(OwnStep), 1),
    ],
    ids=[
        "plain",
        "replicas",
        "joint statistics",
        "accumulating",
        "accumulating in float16 on replicas",
        "pipeline",
        "interleaved pipeline of replicas",
        "stages of scopes",
        "own step",
        "own step on replicas",
    ],
)
def test_it_costs_what_ran(make, ordinal, mode):
    ran, profiled = ran_and_profiled(make, ordinal, mode)
    assert profiled.model.options == ran.model.options
    assert ran.model.options.steps_per_execution == 8
    assert profiled.cycles_per_step == ran.cycles_per_step
    # What does not depend on each other may come in another order.
    assert sorted(costs(profiled), key=repr) == sorted(costs(ran), key=repr)
    expected = ran.model.memory.peak_by_tile.tolist()
    assert profiled.model.memory.peak_by_tile.tolist() == expected


def test_a_stock_model_takes_the_steps_of_compile_too():
    model = perceptron()
    model.compile("adam", "mse", steps_per_execution=8)
    assert profile(model, *SPECS).model.options.steps_per_execution == 8
    given = profile(model, *SPECS, steps_per_execution=2)
    assert given.model.options.steps_per_execution == 2
    assert given.host_cycles > profile(model, *SPECS).host_cycles


@pytest.mark.parametrize(("count", "steps"), [(2, 8), (3, 3), (16, 16)])
def test_an_execution_ends_with_a_weight_update(count, steps):
    """`fit` refuses steps that accumulation does not divide."""
    model = perceptron()
    model.compile("adam", "mse", steps_per_execution=8)
    report = profile(model, *SPECS, gradient_accumulation_count=count)
    assert report.model.options.steps_per_execution == steps


def test_a_pipeline_takes_as_many_batches_as_it_needs():
    with IPUStrategy("/device:IPU:1").scope():
        model = pipelined()()
    model.compile("adam", "mse", steps_per_execution=3)
    assert profile(model, *SPECS, mode="test").model.options.steps_per_execution == 2


@pytest.mark.parametrize("given", [{"num_ipus": 4}, {"num_replicas": 4}])
def test_ipus_that_are_given_go_before_those_of_the_device(given):
    with IPUStrategy("/device:IPU:2").scope():
        model = perceptron()
    model.compile("adam", "mse")
    assert profile(model, *SPECS).num_ipus == 4
    report = profile(model, *SPECS, **given)
    assert report.num_ipus == 4
    assert report.model.options.num_replicas == given.get("num_replicas", 1)


def test_a_stage_that_has_no_ipu_yet_is_modelled():
    with IPUStrategy("/device:IPU:0").scope():
        model = pipelined()()
    model.compile("adam", "mse")
    assert profile(model, *SPECS).num_ipus == 2


def test_choices_have_the_same_steps():
    with IPUStrategy("/device:IPU:1").scope():
        model = perceptron()
    model.compile("adam", "mse", steps_per_execution=8)
    table = what_if(model, *SPECS, num_replicas=[1, 2], gradient_accumulation_count=[1, 8])
    assert [row.report.model.options.steps_per_execution for row in table.rows] == [8] * 4
    for row in table.rows:
        alone = profile(model, *SPECS, **row.choices)
        assert row.report.cycles_per_step == alone.cycles_per_step


def test_what_cannot_be_builds_nothing():
    with IPUStrategy("/device:IPU:1").scope():
        model = unbuilt()
    model.compile("adam", "mse", steps_per_execution=8)
    with pytest.raises(ValueError, match=r"steps_per_execution=0"):
        profile(model, *SPECS, steps_per_execution=0)
    assert not model.built

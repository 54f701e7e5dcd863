"""Pipelines that train: their numbers, their reports, and what they cost beside those of Keras."""

import contextlib
import itertools
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import last_report, popart, profile
from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.cost.passes import run_pipeline
from ipu_keras.ipu_strategy import IPUStrategy

WIDTHS = 20, 32, 32, 32, 3
MICRO_BATCH, ACCUMULATION, BATCHES, RATE = 8, 8, 6, 0.02
NUM_STAGES = 2, 4


class Perceptron:
    """Four layers, in stages of as many layers each; and NumPy that trains it, in 64 bits."""

    def __init__(self, widths=WIDTHS, micro_batch=MICRO_BATCH):
        self.widths, self.micro_batch = widths, micro_batch
        random = np.random.default_rng(0)
        self.weights = {}
        for layer, shape in enumerate(itertools.pairwise(widths)):
            scale = 1 / np.sqrt(shape[0])
            self.weights[f"matrix{layer}"] = np.float32(scale * random.normal(size=shape))
            self.weights[f"bias{layer}"] = np.float32(0.1 * random.normal(size=shape[1]))
        count = BATCHES * ACCUMULATION * micro_batch
        self.x = np.float32(random.normal(size=(count, widths[0])))
        self.labels = random.integers(widths[-1], size=count).astype(np.int32)

    def session(self, training_of, num_stages):
        """One that may run; without a pipeline if there is one stage."""
        builder = popart.Builder()
        values = builder.addInputTensor("FLOAT", [self.micro_batch, self.widths[0]], "x")
        labels = builder.addInputTensor("INT32", [self.micro_batch], "labels")
        names = {n: builder.addInitializedInputTensor(w, n) for n, w in self.weights.items()}
        for layer in range(4):
            with contextlib.ExitStack() as opened:
                stage = layer * num_stages // 4
                opened.enter_context(builder.virtualGraph(stage))
                opened.enter_context(builder.pipelineStage(stage))
                values = builder.aiOnnx.matmul([values, names[f"matrix{layer}"]])
                values = builder.aiOnnx.add([values, names[f"bias{layer}"]])
                if layer < 3:
                    values = builder.aiOnnx.tanh([values])
                else:
                    probabilities = builder.aiOnnx.softmax([values], axis=1)
                    loss = builder.aiGraphcore.nllloss([probabilities, labels])
        options = {"enableGradientAccumulation": True, "accumulationFactor": ACCUMULATION}
        if num_stages > 1:
            manual = popart.VirtualGraphMode.Manual
            options |= {"enablePipelining": True, "virtualGraphMode": manual}
        session, _ = training_of(
            builder.getModelProto(),
            loss,
            popart.SGD({"defaultLearningRate": (RATE, True)}),
            # As Keras returns the loss.
            {loss: popart.AnchorReturnType("Final")},
            BATCHES,
            num_stages,
            **options,
        )
        return session

    def run(self, session):
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({"x": self.x, "labels": self.labels}, anchors))

    def in_keras(self, num_stages):
        """The model in Keras, compiled, as a pipeline of the same stages."""
        layers = [
            keras.layers.Dense(width, "softmax" if layer == 3 else "tanh")
            for layer, width in enumerate(self.widths[1:])
        ]
        model = keras.Sequential([keras.Input((self.widths[0],)), *layers])
        model.set_weights(list(self.weights.values()))
        model.compile(
            keras.optimizers.SGD(RATE),
            "sparse_categorical_crossentropy",
            steps_per_execution=BATCHES * ACCUMULATION,
        )
        assignment = model.get_pipeline_stage_assignment()
        for layer, one in enumerate(assignment):
            one.pipeline_stage = layer * num_stages // 4
        model.set_pipeline_stage_assignment(assignment)
        model.set_pipelining_options(ACCUMULATION)
        return model

    def trained(self):
        """The weights after all batches."""
        weights = {name: weight.astype(np.float64) for name, weight in self.weights.items()}
        for x, labels in zip(
            np.split(self.x, BATCHES), np.split(self.labels, BATCHES), strict=True
        ):
            values = [x.astype(np.float64)]
            for layer in range(3):
                sums = values[-1] @ weights[f"matrix{layer}"] + weights[f"bias{layer}"]
                values.append(np.tanh(sums))
            powers = np.exp(values[-1] @ weights["matrix3"] + weights["bias3"])
            # Of the sum over micro-batches of their means.
            found = powers / powers.sum(axis=1, keepdims=True)
            gradient = (found - np.eye(WIDTHS[-1])[labels]) / self.micro_batch
            after = dict(weights)
            for layer in (3, 2, 1, 0):
                matrix = weights[f"matrix{layer}"]
                after[f"matrix{layer}"] = matrix - RATE * values[layer].T @ gradient
                after[f"bias{layer}"] = weights[f"bias{layer}"] - RATE * gradient.sum(axis=0)
                gradient = gradient @ matrix.T * (1 - values[layer] ** 2)
            weights = after
        return weights


@pytest.fixture
def perceptron():
    return Perceptron()


@pytest.fixture
def strategy_of():
    """Makes a strategy on so many IPUs."""

    def make(num_ipus):
        reset_ipu_configuration()
        config = IPUConfig()
        config.auto_select_ipus = num_ipus
        config.configure_ipu_system()
        return IPUStrategy()

    yield make
    reset_ipu_configuration()


def check_close(found, expected):
    """Within a millionth of the largest number of each weight."""
    for name, weight in expected.items():
        error = np.abs(found[name] - weight).max() / np.abs(weight).max()
        assert error <= 1e-6, (name, error)


@pytest.mark.parametrize("num_stages", NUM_STAGES)
def test_numbers_are_those_of_accumulation(training_of, weights_of, perceptron, num_stages):
    found = []
    for stages in (1, num_stages):
        session = perceptron.session(training_of, stages)
        perceptron.run(session)
        found.append(weights_of(session, perceptron.weights))
    alone, in_stages = found
    check_close(in_stages, alone)
    expected = perceptron.trained()
    check_close(in_stages, expected)
    for name, weight in expected.items():
        assert np.abs(weight - perceptron.weights[name]).max() > 1e-3


def test_a_weight_of_the_first_and_the_last_stage_has_the_gradients_of_both(
    training_of, weights_of
):
    """As the embedding of a transformer, which is its last projection too, on two replicas."""
    weight = np.float32([[0.5, -0.25], [0.75, 1.0]])
    x = np.random.default_rng(0).normal(size=(ACCUMULATION, 2, 3, 2)).astype(np.float32)
    builder = popart.Builder()
    hidden = builder.addInputTensor("FLOAT", [3, 2], "x")
    name = builder.addInitializedInputTensor(weight, "w")
    with builder.virtualGraph(0), builder.pipelineStage(0):
        hidden = builder.aiOnnx.matmul([hidden, name])
    with builder.virtualGraph(1), builder.pipelineStage(1):
        hidden = builder.aiOnnx.tanh([hidden])
    with builder.virtualGraph(0), builder.pipelineStage(2):
        y = builder.aiOnnx.matmul([hidden, builder.aiOnnx.transpose([name], [1, 0])])
        loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    session, anchors = training_of(
        builder.getModelProto(),
        loss,
        popart.ConstSGD(RATE),
        num_ipus=4,
        enableGradientAccumulation=True,
        accumulationFactor=ACCUMULATION,
        enableReplicatedGraphs=True,
        replicatedGraphCount=2,
        enablePipelining=True,
        virtualGraphMode=popart.VirtualGraphMode.Manual,
    )
    session.run(popart.PyStepIO({"x": x}, anchors))
    rows = x.reshape(-1, 2).astype(np.float64)
    activations = np.tanh(rows @ weight)
    first = rows.T @ (weight.sum(axis=0) * (1 - activations**2))
    last = np.tile(activations.sum(axis=0), (2, 1))
    check_close(weights_of(session, {"w": weight}), {"w": weight - RATE * (first + last)})


@pytest.mark.parametrize("num_stages", NUM_STAGES)
def test_stages_and_schedule_in_reports(training_of, perceptron, num_stages):
    session = perceptron.session(training_of, num_stages)
    report = session.getReport()
    view = report.pipeline
    assert report.num_ipus == len(view.stages) == num_stages
    assert (view.schedule, view.num_micro_batches) == ("Grouped", ACCUMULATION)
    for number, stage in enumerate(view.stages):
        assert (stage.stage, stage.ipu) == (number, number)
        assert stage.forward_cycles > 0
        assert stage.backward_cycles > 0
        # What a stage has computed waits for as many batches as are on their way to it and back.
        assert stage.num_stashed == 2 * (num_stages - number) - 1
    assert set(view.cycles_by_phase) == {"fill", "steady", "drain", "weight update"}
    text = session.getSummaryReport()
    assert f"It is for {num_stages} IPUs in a pipeline of {num_stages} stages" in text
    assert f"Grouped pipeline of {num_stages} stages, 8 micro-batches in " in text
    assert "Weights are updated after 8 steps" in text


@pytest.mark.parametrize("num_stages", NUM_STAGES)
def test_it_costs_what_it_does_in_keras(
    training_of, weights_of, strategy_of, perceptron, num_stages
):
    session = perceptron.session(training_of, num_stages)
    perceptron.run(session)
    found = weights_of(session, perceptron.weights)
    report = session.getReport()
    with strategy_of(num_stages).scope():
        model = perceptron.in_keras(num_stages)
        model.fit(perceptron.x, perceptron.labels, batch_size=MICRO_BATCH, shuffle=False, verbose=0)
    of_keras = last_report()
    check_close(found, dict(zip(perceptron.weights, model.get_weights(), strict=True)))
    check_cycles(report, of_keras)


@pytest.mark.parametrize("width", [128, 512, 1024])
def test_stages_of_any_width_cost_what_they_do_in_keras(training_of, strategy_of, width):
    perceptron = Perceptron((width, width, width, width, 1000))
    check_cycles(*reports_of(perceptron, training_of, strategy_of))


def test_stages_with_work_cost_what_they_do_in_keras_with_its_metric(training_of, strategy_of):
    # The metric takes as long for any batch, and here as little as beside most models.
    perceptron = Perceptron((1024, 1024, 1024, 1024, 1000), micro_batch=32)
    report, of_keras = reports_of(perceptron, training_of, strategy_of)
    check_cycles(report, of_keras)
    assert report.cycles_per_step == pytest.approx(of_keras.cycles_per_step, rel=0.05)
    assert report.compute_cycles == pytest.approx(of_keras.compute_cycles, rel=0.05)


def reports_of(perceptron, training_of, strategy_of):
    """Of a session with four stages, and of the same model in Keras."""
    report = perceptron.session(training_of, 4).getReport()
    batch = perceptron.micro_batch
    with strategy_of(4).scope():
        of_keras = profile(
            perceptron.in_keras(4),
            tf.TensorSpec((batch, perceptron.widths[0])),
            tf.TensorSpec((batch,), tf.int32),
        )
    return report, of_keras


def check_cycles(report, of_keras):
    """Those of a session and of the same model in Keras, which counts a metric besides."""
    # An execution of TensorFlow's begins with a copy of the seed.
    model = of_keras.model
    seed = model.seed_cycles / model.options.steps_per_execution
    assert report.host_cycles == pytest.approx(of_keras.host_cycles - seed, abs=1)
    views = [each.pipeline for each in (report, of_keras)]
    assert views[0].schedule == views[1].schedule
    # All but the last stage compute the same, in both directions. That has another form of the
    # loss: Keras takes logarithms of all probabilities and adds up what labels choose of them,
    # PopART takes the probability of each label, and of that the logarithm.
    assert views[0].stages[:-1] == views[1].stages[:-1]
    alone = without_layer(of_keras, "metrics/loss")
    assert report.cycles_per_step == pytest.approx(alone.cycles_per_step, rel=0.05)
    assert report.compute_cycles == pytest.approx(alone.compute_cycles, rel=0.05)
    last, of_keras_last = (each.pipeline.stages[-1].cycles for each in (report, alone))
    assert last == pytest.approx(of_keras_last, rel=0.05)
    # The mean of the losses is what Keras has besides.
    metric = of_keras.pipeline.stages[-1].cycles - of_keras_last
    assert metric == sum(row.cycles for row in of_keras.rows if row.layer == "metrics/loss") > 0


def without_layer(report, layer):
    """The report if the program did not have that layer."""
    pairs = zip(report.model.program.compute_sets, report.model.costs, strict=True)
    kept = [(one, cost) for one, cost in pairs if one.layer != layer]
    compute_sets, costs = zip(*kept, strict=True)
    program = replace(report.model.program, compute_sets=compute_sets)
    model = replace(report.model, program=program, costs=costs)
    return replace(report, model=run_pipeline(model))


def test_convolutions_cost_what_they_do_in_keras(training_of, strategy_of):
    random = np.random.default_rng(0)
    builder = popart.Builder()
    ops = builder.aiOnnx

    def weight(*shape):
        return builder.addInitializedInputTensor(np.float32(random.normal(size=shape)))

    images = builder.addInputTensor("FLOAT", [MICRO_BATCH, 3, 8, 8], "images")
    labels = builder.addInputTensor("INT32", [MICRO_BATCH], "labels")
    with builder.virtualGraph(0), builder.pipelineStage(0):
        x = ops.relu([ops.conv([images, weight(8, 3, 3, 3), weight(8)], pads=[1] * 4)])
        (x,) = ops.maxpool([x], num_outputs=1, kernel_shape=[2, 2], strides=[2, 2])
    with builder.virtualGraph(1), builder.pipelineStage(1):
        x = ops.relu([ops.conv([x, weight(16, 8, 3, 3), weight(16)], pads=[1] * 4)])
        x = ops.add([ops.matmul([ops.flatten([x]), weight(256, 10)]), weight(10)])
        loss = builder.aiGraphcore.nllloss([ops.softmax([x], axis=1), labels])
    session, _ = training_of(
        builder.getModelProto(),
        loss,
        popart.SGD({"defaultLearningRate": (RATE, True)}),
        {loss: popart.AnchorReturnType("Final")},
        BATCHES,
        num_ipus=2,
        enableGradientAccumulation=True,
        accumulationFactor=ACCUMULATION,
        enablePipelining=True,
        virtualGraphMode=popart.VirtualGraphMode.Manual,
    )
    count = BATCHES * ACCUMULATION * MICRO_BATCH
    with strategy_of(2).scope():
        # Channels are first in images of ONNX, and last in those of Keras on a host.
        first = [
            keras.layers.Permute((2, 3, 1)),
            keras.layers.Conv2D(8, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
        ]
        second = [
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.Permute((3, 1, 2)),
            keras.layers.Flatten(),
            keras.layers.Dense(10, "softmax"),
        ]
        model = keras.Sequential([keras.Input((3, 8, 8)), *first, *second])
        model.compile(
            keras.optimizers.SGD(RATE),
            "sparse_categorical_crossentropy",
            steps_per_execution=BATCHES * ACCUMULATION,
        )
        assignment = model.get_pipeline_stage_assignment()
        for layer, one in enumerate(assignment):
            one.pipeline_stage = int(layer >= len(first))
        model.set_pipeline_stage_assignment(assignment)
        model.set_pipelining_options(ACCUMULATION)
        data = np.zeros((count, 3, 8, 8), np.float32), np.zeros(count, np.int32)
        model.fit(*data, batch_size=MICRO_BATCH, shuffle=False, verbose=0)
    report, of_keras = session.getReport(), last_report()
    assert report.cycles_per_step == pytest.approx(of_keras.cycles_per_step, rel=0.05)
    assert report.pipeline.stages[0] == of_keras.pipeline.stages[0]

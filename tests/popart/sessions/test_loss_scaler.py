"""Automatic loss scaling, against NumPy that counts the same gradients."""

import contextlib
import doctest
import itertools

import numpy as np
import popart_goldens as goldens
import pytest
import tensorflow as tf

from ipu_keras import popart
from ipu_keras.popart import AnchorReturnType as Returns
from ipu_keras.popart.sessions import loss_scaler
from ipu_keras.popart.sessions.loss_scaler import Counted, LossScaler

LARGEST = float(np.finfo(np.float32).max)
MEAN, SUM = popart.ReductionType.Mean, popart.ReductionType.Sum
BATCHES = 8
# What the gradients of the models below are about, so that the scale goes up and down.
SETTINGS = popart.AutomaticLossScalingSettings(True, 4 / LARGEST, 0.1)
SCALING = "lossScaling_FLOAT"
FACTOR = "lossScaleUpdateFactor"
# What products and convolutions multiply, and what follows from weights.
TRACKED = {"MLP": ("a", "hidden", "c"), "CNN": ("k", "relu", "c")}
MODELS = {"MLP": goldens.mlp, "CNN": goldens.cnn}


def momentum(rate=0.05, scaling=8.0, **settings):
    given = {"defaultLearningRate": (rate, True), "defaultMomentum": (0.9, True)}
    return popart.SGD({**given, "lossScaling": (scaling, False)}, **settings)


def in_ways(accumulation, replicas, reduction=SUM):
    return {
        "num_ipus": replicas,
        "enableGradientAccumulation": accumulation > 1,
        "accumulationFactor": accumulation,
        "enableReplicatedGraphs": replicas > 1,
        "replicatedGraphCount": replicas,
        "accumulationAndReplicationReductionType": reduction,
        "automaticLossScalingSettings": SETTINGS,
    }


def expected(model, tracked, inputs, is_mean):
    """By batch, what the loss is multiplied by; and the weights behind all of them."""
    values = {"lr": 0.05, "mm": 0.9, "dm": 0.0, "wd": 0.0, "vs": 1.0}
    rule = goldens.Sgd({key: float(np.float32(each)) for key, each in values.items()}, True)
    weights = {name: w.astype(np.float64) for name, w in model.weights.items()}
    scale, scales = 8.0, []
    for batch in range(BATCHES):
        parts = {n: each[batch] for n, each in inputs.items()}
        accumulation, replicas = next(iter(parts.values())).shape[:2]
        found = [
            model.gradients(weights, {n: each[k, r] for n, each in parts.items()})
            for k in range(accumulation)
            for r in range(replicas)
        ]
        scales.append(scale)
        first = scale / replicas if is_mean else scale
        elements = np.concatenate([first * each[n].ravel() for each in found for n in tracked])
        scale *= 0.5 if np.mean(abs(elements) >= 4) > 0.1 else 2.0
        share = accumulation * replicas if is_mean else 1
        weights = {
            n: rule(n, w, sum(each[n] for each in found) / share) for n, w in weights.items()
        }
    return scales, weights


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(
    ("accumulation", "replicas", "reduction"),
    [(1, 1, SUM), (3, 1, MEAN), (1, 2, MEAN), (2, 2, SUM)],
)
def test_it_is_what_numpy_counts(training_of, weights_of, kind, accumulation, replicas, reduction):
    model = MODELS[kind]()
    inputs = model.inputs(BATCHES, accumulation, replicas)
    gradient = f"Gradient___{model.names['c']}"
    session, found = training_of(
        model.proto,
        model.loss,
        momentum(),
        {SCALING: Returns("All"), FACTOR: Returns("All"), gradient: Returns("All")},
        BATCHES,
        **in_ways(accumulation, replicas, reduction),
    )
    session.run(popart.PyStepIO(inputs, found))
    scales, weights = expected(model, TRACKED[kind], inputs, reduction == MEAN)
    # It went up and down.
    assert {b / a for a, b in itertools.pairwise(scales)} == {0.5, 2.0}
    by_batch = found[SCALING].reshape(BATCHES, -1)
    np.testing.assert_array_equal(by_batch, np.broadcast_to(np.c_[scales], by_batch.shape))
    # Which is what the gradients of the batch have been multiplied by.
    after = found[FACTOR].reshape(BATCHES, -1)
    np.testing.assert_array_equal(8 * after[:-1], by_batch[1:])
    first = {n: each[0, 0, 0] for n, each in inputs.items()}
    single = model.gradients(model.weights, first)["c"] * scales[0]
    single = single / replicas if reduction == MEAN else single
    shape = (BATCHES, accumulation, replicas, *single.shape)
    np.testing.assert_allclose(found[gradient].reshape(shape)[0, 0, 0], single, 1e-5, 1e-6)
    # Weights are those of any scale.
    trained = weights_of(session, {model.names[n]: w for n, w in model.weights.items()})
    for name, weight in weights.items():
        error = np.abs(trained[model.names[name]] - weight).max() / np.abs(weight).max()
        assert error <= 1e-6, (name, error)


def test_a_pipeline_counts_all_of_its_stages(training_of):
    def place(builder, part):
        stack = contextlib.ExitStack()
        stack.enter_context(builder.virtualGraph(part))
        stack.enter_context(builder.pipelineStage(part))
        return stack

    found = []
    for model, options in (
        (goldens.mlp(), {}),
        (
            goldens.mlp(place),
            {
                "enablePipelining": True,
                "virtualGraphMode": popart.VirtualGraphMode.Manual,
                "num_ipus": 2,
            },
        ),
    ):
        session, arrays = training_of(
            model.proto,
            model.loss,
            momentum(),
            {SCALING: Returns("All")},
            BATCHES,
            **{**in_ways(4, 1), **options},
        )
        session.run(popart.PyStepIO(model.inputs(BATCHES, 4, 1), arrays))
        found.append(arrays[SCALING])
    np.testing.assert_array_equal(*found)
    assert len(set(found[0].ravel())) > 1


def test_a_model_that_was_written_goes_on(training_of, tmp_path):
    model = goldens.mlp()
    inputs = model.inputs(BATCHES, 1, 1)
    halves = [{n: np.split(each, 2)[k] for n, each in inputs.items()} for k in range(2)]
    path = str(tmp_path / "model.onnx")
    found = []
    session, arrays = training_of(
        model.proto, model.loss, momentum(), {SCALING: Returns("All")}, 4, **in_ways(1, 1)
    )
    session.run(popart.PyStepIO(halves[0], arrays))
    session.modelToHost(path)
    for each in (session, None):
        if each is None:
            each, arrays = training_of(
                path, model.loss, momentum(), {SCALING: Returns("All")}, 4, **in_ways(1, 1)
            )
        each.run(popart.PyStepIO(halves[1], arrays))
        found.append(arrays[SCALING].copy())
    np.testing.assert_array_equal(*found)
    assert found[0][0] != 8
    # Another number of the optimizer is multiplied by the same factor.
    session.updateOptimizerFromHost(momentum(scaling=16.0))
    session.weightsToHost()
    factor = {FACTOR: np.empty((), np.float32)}
    session.readWeights(popart.PyWeightsIO(factor))
    session.run(popart.PyStepIO(halves[0], arrays))
    assert arrays[SCALING][0] == 16 * factor[FACTOR]


def half_model():
    """`mean(x @ w)` in half precision, whose gradient is the mean of the rows of `x`."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT16", [4, 3]))
    w = builder.addInitializedInputTensor(np.ones((3, 1), np.float16))
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.matmul([x, w])])
    return builder.getModelProto(), loss, x, w


def test_half_precision(training_of, weights_of):
    proto, loss, x, w = half_model()
    session, found = training_of(
        proto,
        loss,
        momentum(2.0**-4, 2.0**14),
        {SCALING: Returns("All")},
        4,
        automaticLossScalingSettings=popart.AutomaticLossScalingSettings(True, 0.125, 0.5),
    )
    given = np.full((4, 4, 3), 2.0, np.float16)
    session.run(popart.PyStepIO({x: given}, found))
    # 2 * 2 ** 12 is more than 0.125 * 65504, and so large.
    np.testing.assert_array_equal(found[SCALING], 2.0 ** np.array([14, 13, 12, 11]))
    given[...] = 2.0**-9
    for expected in (2.0 ** np.array([12, 13, 14, 15]), np.full(4, 2.0**15)):
        # A loss in half precision could not be multiplied by 2 ** 16.
        session.run(popart.PyStepIO({x: given}, found))
        np.testing.assert_array_equal(found[SCALING], expected)
    # Steps follow gradients of 2, 2, 2 and 2, and then of 2 ** -9, whatever the scale was.
    rule = goldens.Sgd({"lr": 2.0**-4, "mm": 0.9, "dm": 0, "wd": 0, "vs": 1}, True)
    weight = np.ones((3, 1))
    for gradient in [2.0] * 4 + [2.0**-9] * 8:
        weight = rule("w", weight, np.full((3, 1), gradient))
    trained = weights_of(session, {w: np.empty((3, 1), np.float16)})[w]
    np.testing.assert_allclose(trained, weight, rtol=2e-3, atol=2e-3)


def test_what_is_no_number_is_large():
    scaler = LossScaler(0.5, 0.0, ("x",))
    gradient = tf.constant([np.nan, np.inf, -np.inf, 32752.0, 32736.0, -40000.0, 0.0], tf.float16)
    assert scaler.counts([gradient, gradient]).numpy().tolist() == [10, 4]
    assert scaler.counts([]).numpy().tolist() == [0, 0]
    for large, factor in ((0.0, 2.0), (1.0, 0.5)):
        counted = Counted(tf.constant([large, 9.0]), np.dtype("float32"))
        found = scaler.next_factor(tf.constant(1.0), tf.constant(-4.0), counted)
        assert found.numpy() == factor
    # The factor stays where its product with the optimizer's number would be too small.
    counted = Counted(tf.constant([1.0, 0.0]), np.dtype("float16"))
    found = scaler.next_factor(tf.constant(2.0**-14), tf.constant(1.0), counted)
    assert found.numpy() == 2.0**-14


def test_the_example():
    assert doctest.testmod(loss_scaler).failed == 0


def test_optimizers_and_models_that_it_is_not_for(training_of):
    model = goldens.mlp()
    constant = popart.SGD({"lossScaling": (8.0, True)})
    with pytest.raises(
        popart.popart_exception,
        match=r"must have non-const loss scaling.*Received: lossScaling=8\.0 \(const\)",
    ):
        training_of(model.proto, model.loss, constant, automaticLossScalingSettings=SETTINGS)
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(3, np.float32))
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.tanh([w])], 0.1)
    with pytest.raises(popart.popart_exception, match="depends on none that follows from trained"):
        training_of(
            builder.getModelProto(), loss, momentum(), automaticLossScalingSettings=SETTINGS
        )
    for name in ("binEdgeLocation", "thresholdUpperCountProportion"):
        with pytest.raises(
            popart.popart_exception, match=rf"`{name}` must be in the range from 0 to 1\. Received"
        ):
            popart.AutomaticLossScalingSettings(True, **{name: 1.5})


def test_without_it_there_is_no_factor(training_of):
    model = goldens.mlp()
    with pytest.raises(popart.popart_exception, match=f"Anchor tensor '{FACTOR}' not found"):
        training_of(model.proto, model.loss, momentum(), [FACTOR])

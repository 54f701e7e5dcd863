"""Sessions that train: anchors, new numbers for optimizers, and what is written and read again."""

import contextlib
import gc

import numpy as np
import onnx
import popart_goldens as goldens
import pytest

from ipu_keras import popart
from ipu_keras.popart import AnchorReturnType as Returns
from ipu_keras.popart import SGDAccumulatorAndMomentum as State

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def plain(rate=0.1, *, is_const=True, scaling=1.0):
    given = {"defaultLearningRate": (rate, is_const), "lossScaling": (scaling, True)}
    return popart.SGD(given)


def with_state(rate=0.1):
    given = {"defaultLearningRate": (rate, False), "defaultMomentum": (0.9, True)}
    return popart.SGD(given, accumulatorAndMomentum=State.Separate)


def replicated(replicas, accumulation):
    return {
        "num_ipus": replicas,
        "enableReplicatedGraphs": replicas > 1,
        "replicatedGraphCount": replicas,
        "enableGradientAccumulation": accumulation > 1,
        "accumulationFactor": accumulation,
    }


@pytest.mark.parametrize("make", [goldens.mlp, goldens.cnn])
def test_gradients_as_anchors(training_of, make):
    model = make()
    inputs = model.inputs(1, 3, 2)
    given = {n: each.reshape(6, *each.shape[3:]) for n, each in inputs.items()}
    parts = [{n: each[k] for n, each in given.items()} for k in range(6)]
    expected = [model.gradients(model.weights, part) for part in parts]
    anchors = {f"Gradient___{model.names[n]}": Returns("All") for n in expected[0]}
    session, found = training_of(
        model.proto, model.loss, plain(scaling=8.0), anchors, **replicated(2, 3)
    )
    session.run(popart.PyStepIO(inputs, found))
    for name in expected[0]:
        values = found[f"Gradient___{model.names[name]}"]
        assert values.shape[:2] == (3, 2)
        each = values.reshape(6, *values.shape[2:])
        # Of the loss times its scaling, with axes as in the model.
        np.testing.assert_allclose(each, [8 * one[name] for one in expected], **CLOSE)
        assert session.getInfo(f"Gradient___{model.names[name]}").shape() == list(each.shape[1:])


def test_what_updates_return(training_of):
    model = goldens.mlp()
    w = model.names["c"]
    anchors = {
        model.loss: Returns("All"),
        w: Returns("All"),
        f"Accl1___{w}": Returns("EveryN", 2),
        f"Accum___{w}": Returns("Final"),
        "scaledLearningRate1___default___FLOAT": Returns("Final"),
        "lossScaling_FLOAT": Returns("Sum"),
    }
    session, found = training_of(
        model.proto, model.loss, with_state(), anchors, 4, **replicated(2, 3)
    )
    assert {name: array.shape for name, array in found.items()} == {
        model.loss: (4, 3, 2),
        w: (4, 3, 2, 5, 3),
        f"Accl1___{w}": (2, 3, 2, 5, 3),
        f"Accum___{w}": (2, 5, 3),
        "scaledLearningRate1___default___FLOAT": (2,),
        "lossScaling_FLOAT": (2,),
    }
    inputs = model.inputs(4, 3, 2)
    session.run(popart.PyStepIO(inputs, found))
    rule = goldens.Sgd({"lr": 0.1, "mm": 0.9, "dm": 0.0, "wd": 0.0, "vs": 1.0}, False)
    after, velocities = {n: w.astype(np.float64) for n, w in model.weights.items()}, []
    for batch in range(4):
        flat = {n: each[batch].reshape(6, *each.shape[3:]) for n, each in inputs.items()}
        parts = [{n: each[k] for n, each in flat.items()} for k in range(6)]
        losses = np.reshape([model.losses(after, part) for part in parts], (3, 2))
        np.testing.assert_allclose(found[model.loss][batch], losses, **CLOSE)
        each = [model.gradients(after, part) for part in parts]
        total = {n: sum(one[n] for one in each) for n in after}
        after = {n: rule(n, one, total[n]) for n, one in after.items()}
        velocities.append(rule._velocity["c"])
        # As they are after the update of their batch, for all of its micro-batches.
        same = np.broadcast_to(after["c"], (3, 2, 5, 3))
        np.testing.assert_allclose(found[w][batch], same, **CLOSE)
    for row, velocity in zip(found[f"Accl1___{w}"], velocities[1::2], strict=True):
        np.testing.assert_allclose(row, np.broadcast_to(velocity, row.shape), **CLOSE)
    np.testing.assert_allclose(found[f"Accum___{w}"], [total["c"]] * 2, **CLOSE)
    rates = found["scaledLearningRate1___default___FLOAT"]
    np.testing.assert_array_equal(rates, np.float32([0.1, 0.1]))
    np.testing.assert_array_equal(found["lossScaling_FLOAT"], [12, 12])


def test_the_sum_of_what_updates_return(training_of):
    model = goldens.mlp()
    w = model.names["b"]
    kinds = {"All": Returns("All"), "Sum": Returns("Sum"), "Final": Returns("Final")}
    found = {}
    for kind, returns in kinds.items():
        session, arrays = training_of(
            model.proto, model.loss, plain(), {w: returns}, 3, **replicated(1, 2)
        )
        session.run(popart.PyStepIO(model.inputs(3, 2, 1), arrays))
        found[kind] = arrays[w]
    np.testing.assert_allclose(found["All"].reshape(6, -1).sum(axis=0), found["Sum"], rtol=1e-6)
    np.testing.assert_array_equal(found["All"][-1, -1], found["Final"])


def test_a_pipeline_is_accumulation(training_of, weights_of):
    def place(builder, part):
        stack = contextlib.ExitStack()
        stack.enter_context(builder.virtualGraph(part))
        stack.enter_context(builder.pipelineStage(part))
        return stack

    found = {}
    for kind, model, options in (
        ("whole", goldens.mlp(), {}),
        (
            "pipeline",
            goldens.mlp(place),
            {"enablePipelining": True, "virtualGraphMode": popart.VirtualGraphMode.Manual},
        ),
    ):
        options |= replicated(2, 4)
        options["num_ipus"] = 4 if kind == "pipeline" else 2
        session, _ = training_of(model.proto, model.loss, with_state(), (), 5, **options)
        session.run(popart.PyStepIO(model.inputs(5, 4, 2), {}))
        found[kind] = weights_of(session, {model.names[n]: w for n, w in model.weights.items()})
        assert session.getReport().num_ipus == options["num_ipus"]
    for name, weight in found["whole"].items():
        np.testing.assert_allclose(found["pipeline"][name], weight, rtol=1e-6, atol=1e-7)


def test_a_learning_rate_for_each_step(training_of, weights_of):
    model = goldens.mlp()
    session, _ = training_of(model.proto, model.loss, plain(0.1, is_const=False))
    rates = {"lr": 0.0, "dm": 0.0, "wd": 0.0}
    rule = goldens.PlainSgd(rates)
    engine = session._device.device.engine
    assert engine.counters().num_compilations["training"] == 1
    # Is emptied whenever the step is traced.
    session._infos["traced once"] = ((), np.dtype("float32"))
    inputs = model.inputs(1000, 1, 1)
    after = {n: w.astype(np.float64) for n, w in model.weights.items()}
    for step in range(1000):
        rates["lr"] = 0.3 / (1 + step % 50)
        session.updateOptimizerFromHost(plain(rates["lr"], is_const=False))
        part = {n: each[step, 0, 0] for n, each in inputs.items()}
        session.run(popart.PyStepIO(part, {}))
        gradients = model.gradients(after, part)
        after = {n: rule(n, w, gradients[n]) for n, w in after.items()}
    assert engine.counters().num_compilations["training"] == 1
    assert "traced once" in session._infos
    with pytest.raises(popart.popart_exception, match="New optimizer is not a valid replacement"):
        session.updateOptimizerFromHost(with_state(0.7))
    found = weights_of(session, {model.names[n]: w for n, w in model.weights.items()})
    for name, weight in after.items():
        np.testing.assert_allclose(found[model.names[name]], weight, **CLOSE)


RESUMED = {
    "SGD": lambda: popart.SGD({"defaultMomentum": (0.9, True), "defaultWeightDecay": (0.1, True)}),
    "separate": with_state,
    "Adam": lambda: popart.Adam({"defaultLearningRate": (0.01, True)}),
    "LAMB": lambda: popart.Adam({"defaultLearningRate": (0.01, True)}, popart.AdamMode.Lamb),
    "AdaDelta": lambda: popart.Adaptive({}, popart.AdaptiveMode.AdaDelta),
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_new_session_goes_on_bit_for_bit(training_of, weights_of, tmp_path, name):
    model = goldens.cnn()
    inputs = model.inputs(6, 2, 1)
    parts = [{n: np.split(each, 2)[half] for n, each in inputs.items()} for half in range(2)]
    options = replicated(1, 2)
    arrays = {model.names[n]: w for n, w in model.weights.items()}
    session, _ = training_of(model.proto, model.loss, RESUMED[name](), (), 3, **options)
    session.run(popart.PyStepIO(parts[0], {}))
    path = str(tmp_path / "model.onnx")
    session.modelToHost(path)
    session.run(popart.PyStepIO(parts[1], {}))
    before = {each.name for each in onnx.load_from_string(model.proto).graph.initializer}
    kept = {each.name for each in onnx.load(path).graph.initializer} - before
    assert kept
    assert all(name.partition("___")[0] in ("Accl", "Accl1", "Accl2", "Step") for name in kept)
    again, _ = training_of(path, model.loss, RESUMED[name](), (), 3, **options)
    again.run(popart.PyStepIO(parts[1], {}))
    for each, weight in weights_of(again, arrays).items():
        np.testing.assert_array_equal(weight, weights_of(session, arrays)[each])
    # And as it does if it gets the model later.
    other, _ = training_of(model.proto, model.loss, RESUMED[name](), (), 3, **options)
    other.resetHostWeights(path)
    with pytest.raises(popart.popart_exception, match="Must call weightsFromHost before run"):
        other.run(popart.PyStepIO(parts[1], {}))
    other.weightsFromHost()
    other.run(popart.PyStepIO(parts[1], {}))
    for each, weight in weights_of(other, arrays).items():
        np.testing.assert_array_equal(weight, weights_of(session, arrays)[each])


def test_what_momentum_is_before_and_after_the_weights_are_updated(training_of):
    """As PopART has it: v = 2 * 1, w = 1 - 0.5 * v, and 0.9 * v is kept."""
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(2, np.float32), "w")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([w, w])], popart.ReductionType.Sum)
    optimizer = popart.SGD({"defaultLearningRate": (0.5, True), "defaultMomentum": (0.9, True)})
    prefixes = ("AcclToUpdate___", "AcclFinalOut___", "Accl___", "UpdatedVar___", "")
    session, found = training_of(
        builder.getModelProto(), loss, optimizer, [prefix + w for prefix in prefixes]
    )
    session.run(popart.PyStepIO({}, found))
    values = [found[prefix + w].tolist() for prefix in prefixes]
    np.testing.assert_allclose(values, [[2, 2], [1.8, 1.8], [1.8, 1.8], [0, 0], [0, 0]], rtol=1e-6)
    factors = session.replicationFactor, session.accumulationFactor
    assert (session.dataFlow.nAnchors(), *factors) == (5, 1, 1)


@pytest.mark.parametrize("returns", ["All", "Final", "Sum"])
def test_what_momentum_is_before_replicas_add_it_up(training_of, returns):
    """As PopART has it: v + replicas * g of each replica; v is momentum / replicas of their sum."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    w = builder.addInitializedInputTensor(np.ones(2, np.float32))
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
    optimizer = popart.SGD({"defaultLearningRate": (0.5, True), "defaultMomentum": (0.8, True)})
    name = popart.reservedAcclToReducePrefix() + w
    session, found = training_of(
        builder.getModelProto(),
        loss,
        optimizer,
        {name: popart.AnchorReturnType(returns)},
        batches=2,
        num_ipus=2,
        enableGradientAccumulation=True,
        accumulationFactor=3,
        enableReplicatedGraphs=True,
        replicatedGraphCount=2,
    )
    given = np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2)
    session.run(popart.PyStepIO({x: given}, found))
    kept, expected = 0, np.zeros((2, 3, 2, 2), np.float32)
    for batch in range(2):
        momenta = kept + 2 * given[batch].sum(axis=0)
        expected[batch] = momenta
        kept = 0.8 / 2 * momenta.sum(axis=0)
    by_art = {"All": expected, "Final": expected[-1, -1], "Sum": expected.sum(axis=(0, 1))}
    np.testing.assert_allclose(found[name], by_art[returns], rtol=1e-6)


def test_integers_that_are_cast_have_gradients_of_their_type(training_of):
    builder = popart.Builder()
    x = builder.addInputTensor("INT32", [3])
    w = builder.addInitializedInputTensor(np.float32([2.5, -3.5, 1]), "w")
    product = builder.aiOnnx.mul([builder.aiOnnx.cast([x], "FLOAT"), w])
    loss = builder.aiGraphcore.identityloss([product], popart.ReductionType.Sum)
    session, found = training_of(
        builder.getModelProto(), loss, popart.ConstSGD(0.5), [f"Gradient___{x}"]
    )
    session.run(popart.PyStepIO({x: np.int32([1, 2, 3])}, found))
    assert found[f"Gradient___{x}"].dtype == np.int32
    assert found[f"Gradient___{x}"].tolist() == [2, -3, 1]


def test_weights_of_host_and_device(training_of, weights_of):
    model = goldens.cnn()
    inputs = {n: each[0, 0, 0] for n, each in model.inputs(1, 1, 1).items()}
    k = model.names["k"]
    session, _ = training_of(model.proto, model.loss, plain())
    read = {k: np.empty((3, 2, 3, 3), np.float32)}
    with pytest.raises(popart.popart_exception, match="Must call weightsToHost before readWeights"):
        session.readWeights(popart.PyWeightsIO(read))
    session.run(popart.PyStepIO(inputs, {}))
    trained = weights_of(session, read)[k]
    gradient = model.gradients(model.weights, inputs)["k"]
    np.testing.assert_allclose(trained, model.weights["k"] - 0.1 * gradient, **CLOSE)
    # What was read stays as it is; and the host's weights are those of the model.
    session.run(popart.PyStepIO(inputs, {}))
    session.readWeights(popart.PyWeightsIO(read))
    np.testing.assert_array_equal(read[k], trained)
    session.weightsFromHost()
    np.testing.assert_array_equal(weights_of(session, read)[k], model.weights["k"])
    # A flat array is as good.
    session.writeWeights(popart.PyWeightsIO({k: trained.ravel()}))
    session.weightsFromHost()
    np.testing.assert_array_equal(weights_of(session, {k: trained.ravel()})[k], trained.ravel())
    with pytest.raises(popart.popart_exception, match=r"Received: float32 of the shape \[9, 6\]"):
        session.readWeights(popart.PyWeightsIO({k: trained.reshape(9, 6).copy()}))
    with pytest.raises(popart.popart_exception, match="no weight 'w' in the model"):
        session.readWeights(popart.PyWeightsIO({**read, "w": trained}))


def normalized(ratio=0.0):
    random = np.random.default_rng(0)
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 3, 2, 2]), "x")
    given = [np.ones(3), np.zeros(3), np.zeros(3), np.ones(3)]
    names = [builder.addInitializedInputTensor(one.astype(np.float32)) for one in given]
    y, *_ = builder.aiOnnx.batchnormalization([x, *names], 5, momentum=0.75)
    y, *_ = builder.aiOnnx.dropout([y], 1, ratio)
    loss = builder.aiGraphcore.l1loss([y], 0.1)
    data = random.normal(2.0, size=(2, 4, 3, 2, 2)).astype(np.float32)
    return builder.getModelProto(), loss, y, names, data


def test_statistics_of_batches(training_of, weights_of):
    proto, loss, y, names, data = normalized()
    session, found = training_of(proto, loss, plain(), {y: Returns("All")}, 2)
    session.run(popart.PyStepIO({"x": data}, found))
    mean, variance = np.zeros(3), np.ones(3)
    for part in data.astype(np.float64):
        mean = 0.75 * mean + 0.25 * part.mean(axis=(0, 2, 3))
        variance = 0.75 * variance + 0.25 * part.var(axis=(0, 2, 3))
    arrays = weights_of(session, {name: np.empty(3, np.float32) for name in names})
    np.testing.assert_allclose(arrays[names[2]], mean, **CLOSE)
    np.testing.assert_allclose(arrays[names[3]], variance, **CLOSE)
    first = data[0] - data[0].mean(axis=(0, 2, 3), keepdims=True)
    first /= np.sqrt(data[0].var(axis=(0, 2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(found[y][0], first, rtol=1e-4, atol=1e-5)
    assert arrays[names[0]].max() < 1.0


def test_dropout_by_seeds(training_of):
    proto, loss, y, _, data = normalized(0.5)
    session, found = training_of(proto, loss, plain(), {y: Returns("All")}, 2)
    zeros = []
    for seed in (1, 2, 1):
        session.setRandomSeed(seed)
        session.weightsFromHost()
        session.run(popart.PyStepIO({"x": data}, found))
        zeros.append(found[y] == 0)
    np.testing.assert_array_equal(zeros[0], zeros[2])
    assert (zeros[0] != zeros[1]).any()
    assert 0.25 < zeros[0].mean() < 0.75


def test_numbers_that_are_not_finite(training_of, weights_of):
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 2]))
    w = builder.addInitializedInputTensor(np.ones((2, 2), np.float32))
    product = builder.aiOnnx.mul([x, w])
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.sqrt([product])])
    session, found = training_of(
        builder.getModelProto(),
        loss,
        plain(),
        {loss: Returns("All")},
        2,
        enableFloatingPointChecks=True,
    )
    given = np.ones((2, 2, 2), np.float32)
    session.run(popart.PyStepIO({x: given}, found))
    before = found[loss].copy()
    # The root of 0 is 0, and its gradient infinite.
    given[1, 0, 0] = 0
    with pytest.raises(
        popart.poplar_exception, match=r"Floating point exception in the gradient of"
    ):
        session.run(popart.PyStepIO({x: given}, found))
    np.testing.assert_array_equal(found[loss], before)
    # The device has what the step made of its weights, the host still has those before.
    ones = np.ones((2, 2), np.float32)
    session.weightsFromHost()
    np.testing.assert_array_equal(weights_of(session, {w: ones})[w], ones)
    with pytest.raises(popart.poplar_exception, match=r"weights .*: weightsFromHost takes those"):
        session.run(popart.PyStepIO({x: given}, found))
    assert np.isnan(weights_of(session, {w: ones})[w][0, 0])


def test_a_dropped_session_frees_its_ipus():
    model = goldens.mlp()
    manager = popart.DeviceManager()
    free = len(manager.enumerateDevices(numIpus=1))
    device = manager.acquireAvailableDevice(1)
    session = popart.TrainingSession(
        model.proto, popart.DataFlow(1, [model.loss]), model.loss, plain(), device
    )
    session.prepareDevice()
    session.weightsFromHost()
    part = {n: each[0, 0, 0] for n, each in model.inputs(1, 1, 1).items()}
    session.run(popart.PyStepIO(part, session.initAnchorArrays()))
    gc.collect()
    gc.disable()
    try:
        del session, device
        assert len(manager.enumerateDevices(numIpus=1)) == free
        assert manager.acquireAvailableDevice(free) is not None
    finally:
        gc.enable()


def test_a_device_that_was_detached(weights_of):
    model = goldens.mlp()
    device = popart.DeviceManager().acquireAvailableDevice(1)
    flow = popart.DataFlow(1, ["scaledLearningRate0___default___FLOAT"])
    optimizer = plain(0.1, is_const=False)
    session = popart.TrainingSession(model.proto, flow, model.loss, optimizer, device)
    session.prepareDevice()
    session.weightsFromHost()
    arrays = session.initAnchorArrays()
    part = {n: each[0, 0, 0] for n, each in model.inputs(1, 1, 1).items()}
    session.run(popart.PyStepIO(part, arrays))
    device.detach()
    session.updateOptimizerFromHost(plain(0.2, is_const=False))
    for call in (session.weightsToHost, session.weightsFromHost, lambda: session.modelToHost("m")):
        with pytest.raises(popart.popart_exception, match="was detached, and what it held is gone"):
            call()
    device.attach()
    session.prepareDevice()
    with pytest.raises(popart.popart_exception, match="Must call weightsFromHost before run"):
        session.run(popart.PyStepIO(part, arrays))
    session.weightsFromHost()
    session.run(popart.PyStepIO(part, arrays))
    assert arrays["scaledLearningRate0___default___FLOAT"] == np.float32(0.2)
    found = weights_of(session, {model.names[n]: w for n, w in model.weights.items()})
    for name, gradient in model.gradients(model.weights, part).items():
        if name in model.weights:
            expected = model.weights[name] - 0.2 * gradient
            np.testing.assert_allclose(found[model.names[name]], expected, **CLOSE)


def test_cycles_reports_and_graphs(training_of):
    model = goldens.mlp()
    options = {**replicated(1, 2), "instrumentWithHardwareCycleCounter": True}
    session, _ = training_of(model.proto, model.loss, with_state(), (), 3, **options)
    session.run(popart.PyStepIO(model.inputs(3, 2, 1), {}))
    assert session.getCycleCount() > 6 * 100
    assert "Weights are updated after 2 steps" in session.getSummaryReport()
    assert b"MatMul" in session.getSerializedGraph() or b"dot" in session.getSerializedGraph()
    assert session.getHostReduceStreamIds() == []

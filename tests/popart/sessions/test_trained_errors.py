"""What sessions that train refuse, and in which words."""

import contextlib

import numpy as np
import onnx
import popart_goldens as goldens
import pytest

from ipu_keras import popart

MANUAL = popart.VirtualGraphMode.Manual


@pytest.fixture(scope="module")
def model():
    return goldens.mlp()


@pytest.fixture
def made(ipu_model, model):
    """Makes a session of the model, with options by name."""

    def make(loss=None, anchors=(), optimizer=None, num_ipus=1, proto=None, **options):
        chosen = popart.SessionOptions()
        for name, value in options.items():
            setattr(chosen, name, value)
        return popart.TrainingSession(
            model.proto if proto is None else proto,
            popart.DataFlow(1, anchors),
            model.loss if loss is None else loss,
            popart.SGD({"defaultLearningRate": (0.1, False)}) if optimizer is None else optimizer,
            ipu_model(num_ipus),
            userOptions=chosen,
        )

    return make


def step_of(model):
    return popart.PyStepIO({n: each[0, 0, 0] for n, each in model.inputs(1, 1, 1).items()}, {})


def test_losses(made, model):
    with pytest.raises(
        popart.popart_exception, match="Could not find loss tensor 'lost' in main graph tensors"
    ):
        made("lost")
    logits = model.names["logits"]
    with pytest.raises(
        popart.popart_exception,
        match=rf"Loss tensor, '{logits}', must be a scalar tensor. Received: the shape \[6, 3\]",
    ):
        made(logits)
    builder = popart.Builder()
    constant = builder.aiOnnx.constant(np.float32(1))
    with pytest.raises(popart.popart_exception, match="must be computed, in floating point"):
        made(constant, proto=builder.getModelProto())


def test_anchors_and_optimizers(made):
    for name in ("lost", "Gradient___lost", "Accl2___a", "Accum___x"):
        with pytest.raises(
            popart.popart_exception, match=f"Anchor tensor '{name}' not found in the model"
        ):
            made(anchors=[name])
    with pytest.raises(popart.popart_exception, match="has no gradient, as it is of type int32"):
        made(anchors=["Gradient___labels"])
    with pytest.raises(TypeError, match=r"`optimizer` must be an SGD.*Received: optimizer=0\.1"):
        made(optimizer=0.1)
    optimizer = popart.SGD({})
    optimizer.insertSpecific("lost", {"momentum": (0.5, True)})
    with pytest.raises(popart.popart_exception, match="'lost'; the weights are 'a', 'b', 'c'"):
        made(optimizer=optimizer)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"accumulationFactor": 4}, "enableGradientAccumulation is false, but accumulationFactor"),
        (
            {"hostWeightUpdate": True},
            "Host weight update can't be enabled without .* hostAllReduce",
        ),
        (
            {"automaticLossScalingSettings": popart.AutomaticLossScalingSettings(True)},
            "the optimizer must have non-const loss scaling",
        ),
        (
            {"accumulationAndReplicationReductionType": popart.ReductionType.NoReduction},
            "must be ReductionType.Sum or ReductionType.Mean",
        ),
        (
            {"enableReplicatedGraphs": True, "replicatedGraphCount": 2},
            "2 replicas .* of 1 IPUs each need a device of 2 IPUs",
        ),
    ],
)
def test_options(made, options, text):
    with pytest.raises(popart.popart_exception, match=text):
        made(**options)


def test_accumulation_factors_are_positive(made):
    for factor in (0, -1):
        with pytest.raises((popart.popart_exception, ValueError), match="accumulationFactor"):
            made(enableGradientAccumulation=True, accumulationFactor=factor)


def test_pipelines_need_accumulation(made):
    builder_model = goldens.mlp(placed)
    options = {"enablePipelining": True, "virtualGraphMode": MANUAL, "num_ipus": 2}
    with pytest.raises(
        popart.popart_exception, match=r"needs gradient accumulation.*accumulationFactor to 2"
    ):
        made(proto=builder_model.proto, **options)
    with pytest.raises(
        popart.popart_exception,
        match=r"depth must equal at least the number of pipeline stages \(2\)",
    ):
        made(proto=builder_model.proto, enableGradientAccumulation=True, **options)


def placed(builder, part):
    stack = contextlib.ExitStack()
    stack.enter_context(builder.virtualGraph(part))
    stack.enter_context(builder.pipelineStage(part))
    return stack


def test_the_order_of_calls(made, model):
    session = made()
    for call in (session.getSummaryReport, session.getGraphReport, session.getExecutionReport):
        with pytest.raises(
            popart.popart_exception,
            match="Session must have been prepared before a report can be fetched",
        ):
            call()
    with pytest.raises(popart.popart_exception, match="Must call prepareDevice before run"):
        session.run(step_of(model))
    with pytest.raises(popart.popart_exception, match="prepareDevice before weightsFromHost"):
        session.weightsFromHost()
    with pytest.raises(popart.popart_exception, match="prepareDevice before weightsToHost"):
        session.weightsToHost()
    session.prepareDevice()
    with pytest.raises(
        popart.popart_exception,
        match="Must call weightsFromHost before run as the model has initializers",
    ):
        session.run(step_of(model))
    session.weightsFromHost()
    session.run(step_of(model))


def test_what_there_is_not(made):
    session = made()
    with pytest.raises(popart.popart_exception, match=r"There is no popart\.Ir"):
        session.getIr()
    with pytest.raises(popart.popart_exception, match="There is no stream 'gradient'"):
        session.connectStreamToCallback("gradient", print, 0)


def test_a_refused_optimizer_changes_nothing(made, model):
    session = made(anchors=["scaledLearningRate0___default___FLOAT"])
    session.prepareDevice()
    session.weightsFromHost()
    arrays = session.initAnchorArrays()
    for refused in (
        popart.SGD({"defaultLearningRate": (0.7, True), "lossScaling": (2.0, True)}),
        popart.Adam({}),
    ):
        with pytest.raises(
            popart.popart_exception, match="New optimizer is not a valid replacement"
        ):
            session.updateOptimizerFromHost(refused)
    inputs = {n: each[0, 0, 0] for n, each in model.inputs(1, 1, 1).items()}
    session.run(popart.PyStepIO(inputs, arrays))
    assert arrays["scaledLearningRate0___default___FLOAT"] == np.float32(0.1)


def test_a_model_with_the_state_of_another(made, model, tmp_path):
    momentum = popart.SGD({"defaultMomentum": (0.9, True)})
    path = str(tmp_path / "model.onnx")
    made(optimizer=momentum).modelToHost(path)
    proto = onnx.load(path)
    (kept,) = (each for each in proto.graph.initializer if each.name == "Accl___a")
    kept.CopyFrom(onnx.numpy_helper.from_array(np.zeros((2, 2), np.float32), "Accl___a"))
    with pytest.raises(popart.popart_exception, match=r"The weight Accl___a is float32 .*\[4, 5\]"):
        made(proto=proto.SerializeToString(), optimizer=momentum)


def test_options_without_effect(made):
    with pytest.warns(
        UserWarning,
        match=r"(?s)have no meaning here: mergeVarUpdate\. .* Models update each weight",
    ):
        made(mergeVarUpdate=popart.MergeVarUpdateType.All)


def test_what_was_compiled_for_another_loss(made, model, tmp_path):
    device = popart.DeviceManager().acquireAvailableDevice(1)
    path = str(tmp_path / "executable")

    def session(rate, anchors=()):
        return popart.TrainingSession(
            model.proto,
            popart.DataFlow(1, anchors),
            model.loss,
            popart.ConstSGD(rate),
            device,
        )

    session(0.1).compileAndExport(path)
    other = session(0.1)
    other.loadExecutable(path)
    other.prepareDevice()
    other.weightsFromHost()
    other.run(step_of(model))
    with pytest.raises(popart.popart_exception, match="was compiled for another session"):
        session(0.2).loadExecutable(path)

"""What each option of a session changes: numbers, what a program would cost, files, or nothing."""

import re
import warnings

import numpy as np
import pytest

from ipu_keras import popart
from ipu_keras.popart.options.option import Effect
from ipu_keras.popart.options.session_options import SessionOptions

# Change nothing, and are named in one warning; each with another value than the first.
IDLE = {
    "disableGradAccumulationTensorStreams": True,
    "explicitRecomputation": True,
    "mergeVarUpdate": popart.MergeVarUpdateType.All,
    "mergeVarUpdateMemThreshold": 1,
    "decomposeGradSum": True,
    "enableFullyConnectedPass": False,
    "accumulateOuterFragmentSettings": popart.AccumulateOuterFragmentSettings(
        popart.AccumulateOuterFragmentSchedule.OverlapCycleOptimized
    ),
    "aliasZeroCopy": True,
    "batchSerializationSettings": popart.BatchSerializationSettings(factor=2),
    "customCodelets": ["vertices.cpp"],
    "customCodeletCompileFlags": "-g",
    "defaultPrefetchBufferingDepth": 2,
    "enableExplicitMainLoops": True,
    "enableGroupedMatmuls": False,
    "enableOutliningCopyCostPruning": False,
    "enablePrefetchDatastreams": False,
    "enableStableNorm": True,
    "executionPhaseSettings": popart.ExecutionPhaseSettings(phases=2),
    "exportPoplarComputationGraph": True,
    "exportPoplarVertexGraph": True,
    "gclOptions": {"useSynclessCollectives": "true"},
    "groupHostSync": True,
    "hardwareInstrumentations": {popart.Instrumentation.Inner},
    "hostAllReduceRemoteBuffer": True,
    "kahnTieBreaker": "fifo",
    "lstmOptions": {"availableMemoryProportion": "0.1"},
    "opxAliasChecking": True,
    "opxModifyChecking": True,
    "outlineSequenceBreakCost": 1.0,
    "outlineThreshold": -1.0,
    "prefetchBufferingDepthMap": {"input": 2},
    "rearrangeAnchorsOnHost": False,
    "reportOptions": {"showVarStorage": "true"},
    "separateCallOpPdfs": False,
    "serializedPoprithmsAnnealGraphsDir": "graphs",
    "serializedPoprithmsShiftGraphsDir": "graphs",
    "strictOpVersions": False,
    "subgraphCopyingStrategy": popart.SubgraphCopyingStrategy.JustInTime,
    "swapLimitScheduler": 10,
    "tensorLocationSettingsOverride": {"w": popart.TensorLocation(popart.TensorStorage.OffChip)},
    "timeLimitScheduler": 10.0,
    "transitiveClosureOptimizationThreshold": 10,
    "useHostCopyOps": True,
}

# Are for training: change nothing in inference, without a warning.
# What else has to be set.
NEEDED = {"enableExplicitMainLoops": {"useHostCopyOps": True}}

TRAINING = {
    "accumulationAndReplicationReductionType": popart.ReductionType.Mean,
    "accumulationFactor": 2,
    "accumulatorTensorLocationSettings": popart.TensorLocationSettings(
        popart.TensorStorage.OffChip
    ),
    "automaticLossScalingSettings": popart.AutomaticLossScalingSettings(True),
    "autoRecomputation": popart.RecomputationType.Standard,
    "hostAllReduce": True,
    "hostWeightUpdate": True,
    "optimizerStateTensorLocationSettings": popart.TensorLocationSettings(
        popart.TensorStorage.OffChip
    ),
}


class Tried:
    """Makes sessions with options, of a model with `relu(x @ w)` or of another one."""

    def __init__(self, relu, session_of, tmp_path):
        self.relu = relu
        self.make = session_of
        self.folder = tmp_path

    def session(self, **options):
        return self.make(self.relu.proto, [self.relu.y], **options)

    def result(self, **options):
        session, arrays = self.session(**options)
        session.run(popart.PyStepIO({self.relu.x: self.relu.data()}, arrays))
        return arrays[self.relu.y]

    def report(self, **options):
        return self.session(**options)[0].getReport()


@pytest.fixture
def tried(relu, session_of, tmp_path):
    return Tried(relu, session_of, tmp_path)


def alone(op, *shapes):
    """A model of one operation, of inputs of shapes; and the names of its inputs and output."""
    builder = popart.Builder()
    inputs = [builder.addInputTensor("FLOAT", shape) for shape in shapes]
    y = op(builder, inputs)
    return builder.getModelProto(), inputs, y


def computed(tried, model, given, **options):
    proto, inputs, y = model
    session, arrays = tried.make(proto, [y], **options)
    session.run(popart.PyStepIO(dict(zip(inputs, given, strict=True)), arrays))
    return arrays[y]


def replicated(tried):
    options = {"enableReplicatedGraphs": True, "replicatedGraphCount": 2}
    _, arrays = tried.make(tried.relu.proto, [tried.relu.y], num_ipus=2, **options)
    assert arrays[tried.relu.y].shape == (2, 2, 4)
    with pytest.raises(popart.popart_exception, match=r"^enableReplicatedGraphs is false, but rep"):
        tried.make(tried.relu.proto, [tried.relu.y], num_ipus=2, replicatedGraphCount=2)


def distributed(tried):
    """What several processes do is tried in `tests/processes`; one by itself has no others."""
    alone = {"enableDistributedReplicatedGraphs": True}
    expected = tried.relu.computed(tried.relu.data())
    np.testing.assert_allclose(tried.result(**alone), expected, 1e-6, 1e-6)
    for wrong in ({"globalReplicationFactor": 2}, {"globalReplicaOffset": 1}):
        found = {"globalReplicationFactor": 1, "globalReplicaOffset": 0, **wrong}
        message = "must be 1 and 0: process 0 of 1 that have joined has 1 replica.* Received: "
        with pytest.raises(
            popart.popart_exception, match=message + "{} and {}".format(*found.values())
        ):
            tried.session(**alone, **wrong)
        # Without the switch, nothing reads them.
        np.testing.assert_allclose(tried.result(**wrong), expected, 1e-6, 1e-6)


def in_parts():
    """A model on two IPUs."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 64])
    values = x
    for part in range(2):
        w = builder.addInitializedInputTensor(np.ones((64, 64), np.float32))
        with builder.virtualGraph(part), builder.pipelineStage(part):
            values = builder.aiOnnx.matmul([values, w])
    return builder.getModelProto(), x, values


MANUAL = {"virtualGraphMode": popart.VirtualGraphMode.Manual}


def virtual_graphs(tried):
    proto, _, y = in_parts()
    reports = [tried.make(proto, [y], 2, 2, **o)[0].getReport() for o in ({}, MANUAL)]
    assert [report.num_ipus for report in reports] == [1, 2]


def pipelined(tried):
    proto, _, y = in_parts()
    session, _ = tried.make(proto, [y], 2, 2, enablePipelining=True, **MANUAL)
    assert session.getReport().model.options.pipeline.device_mapping == (0, 1)


def weights_elsewhere(tried):
    proto, _, y = in_parts()
    options = {"enableReplicatedGraphs": True, "replicatedGraphCount": 2, **MANUAL}
    options["enablePipelining"] = True
    location = popart.TensorLocation(
        popart.TensorStorage.OffChip, popart.ReplicatedTensorSharding.On
    )
    settings = popart.TensorLocationSettings(location, 2, 64)
    reports = [
        tried.make(proto, [y], 2, 4, **options, **more)[0].getReport()
        for more in ({}, {"weightTensorLocationSettings": settings})
    ]
    cycles = [report.model.cycles_per_step for report in reports]
    assert cycles[0] < cycles[1]
    for name in ("weightTensorLocationSettings", "activationTensorLocationSettings"):
        message = f"^SessionOptions sets {name} without an effect. Tensors are kept elsewhere"
        with pytest.warns(UserWarning, match=message) as warned:
            result = tried.result(**{name: settings})
        assert len(warned) == 1
        np.testing.assert_array_equal(result, tried.result())


def accumulated(tried):
    with pytest.raises(popart.popart_exception, match="Gradient Accumulation"):
        tried.session(enableGradientAccumulation=True)


def synthetic(tried):
    session, arrays = tried.session(syntheticDataMode=popart.SyntheticDataMode.Zeros)
    arrays[tried.relu.y][:] = 7
    session.run(popart.PyStepIO({}, arrays))
    assert (arrays[tried.relu.y] == 7).all()


def rounded_at_random(tried):
    """1 + 2**-11 is halfway between two halves, of which the even one is the nearest."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT16", [4096])
    half = builder.aiOnnx.constant(np.full(1, 2**-11, np.float16))
    y = builder.aiOnnx.add([x, half])
    ones = np.ones(4096, np.float16)

    def sums(seed, **options):
        session, arrays = tried.make(builder.getModelProto(), [y], **options)
        if seed is not None:
            session.setRandomSeed(seed)
        session.run(popart.PyStepIO({x: ones}, arrays))
        return arrays[y]

    assert (sums(None) == 1).all()
    first, second, again = (sums(seed, enableStochasticRounding=True) for seed in (5, 6, 5))
    assert sorted(np.unique(first)) == [1, 1 + 2**-10]
    assert abs((first > 1).mean() - 0.5) < 4 * 0.5 / 64
    assert abs((first == second).mean() - 0.5) < 4 * 0.5 / 64
    np.testing.assert_array_equal(first, again)


def constant_weights(tried):
    weights_io = popart.PyWeightsIO({tried.relu.w: tried.relu.weights})
    with pytest.raises(popart.popart_exception, match=r"when SessionOptions\.constantWeights is"):
        tried.session()[0].writeWeights(weights_io)
    tried.session(constantWeights=False)[0].writeWeights(weights_io)


def narrow_types(tried):
    builder = popart.Builder()
    y = builder.aiOnnx.identity([builder.addInputTensor("INT64", [2])])
    proto = builder.getModelProto()
    tried.make(proto, [y])
    with pytest.raises(popart.popart_exception, match="type INT64 is not supported in Poplar"):
        tried.make(proto, [y], enableSupportedDataTypeCasting=False)


def softmax(tried):
    model = alone(lambda builder, inputs: builder.aiOnnx.softmax(inputs, 1), [2, 3])
    x = np.float32([[1, 2, 3], [100, 50, 60]])
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(computed(tried, model, [x]), expected, rtol=1e-5)
    found = computed(tried, model, [x], enableNonStableSoftmax=True)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    # exp(100) is infinite in float32, and infinity by infinity is no number.
    assert np.isnan(found[1][0])


def checked_numbers(tried):
    model = alone(lambda builder, inputs: builder.aiOnnx.log(inputs), [1])
    zero = np.zeros(1, np.float32)
    assert computed(tried, model, [zero]) == -np.inf
    with pytest.raises(popart.poplar_exception, match="Log"):
        computed(tried, model, [zero], enableFloatingPointChecks=True)


def strided_groups(tried):
    def normalized(builder, inputs):
        ones, zeros = (builder.aiOnnx.constant(np.full(4, n, np.float32)) for n in (1, 0))
        return builder.aiGraphcore.groupnormalization([*inputs, ones, zeros], 2, epsilon=0.0)[0]

    model = alone(normalized, [1, 4, 1, 2])
    x = np.random.default_rng(0).normal(size=(1, 4, 1, 2)).astype(np.float32)
    for strided, groups in ((False, ([0, 1], [2, 3])), (True, ([0, 2], [1, 3]))):
        expected = np.empty_like(x)
        for group in groups:
            expected[:, group] = (x[:, group] - x[:, group].mean()) / x[:, group].std()
        found = computed(tried, model, [x], groupNormStridedChannelGrouping=strided)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def random_state(tried):
    with pytest.raises(popart.popart_exception, match="enableLoadAndOffloadRNGState"):
        tried.session()[0].getRNGState()
    assert tried.session(enableLoadAndOffloadRNGState=True)[0].getRNGState()


def compiled_engine(tried):
    with pytest.raises(popart.popart_exception, match=r"SessionOptions\.compileEngine is False"):
        tried.result(compileEngine=False)


def cached(tried):
    path = tried.folder / "cache"
    tried.session(cachePath=str(path))[0].getReport()
    assert not path.exists()
    tried.session(enableEngineCaching=True, cachePath=str(path))[0].getReport()
    assert list(path.iterdir())


def engine_options(tried):
    chosen = {"autoReport.all": "true", "autoReport.directory": str(tried.folder)}
    tried.session(engineOptions=chosen)
    assert list(tried.folder.iterdir())
    with pytest.raises(popart.poplar_exception, match="Unrecognised option 'other'"):
        tried.session(engineOptions={"other": "true"})


def counted_cycles(tried):
    session, arrays = tried.session(instrumentWithHardwareCycleCounter=True)
    session.run(popart.PyStepIO({tried.relu.x: tried.relu.data()}, arrays))
    assert session.getCycleCount() == session.getReport().model.cycles_per_step


def io_tiles(tried):
    assert tried.report(numIOTiles=32).model.target.num_tiles == 1440


def partials(tried):
    builder = popart.Builder()
    x, w = (builder.addInputTensor("FLOAT16", [512, 512]) for _ in range(2))
    y = builder.aiOnnx.matmul([x, w])
    proto = builder.getModelProto()
    cycles = [
        tried.make(proto, [y], partialsTypeMatMuls=kind)[0].getReport().model.cycles_per_step
        for kind in ("float", "half")
    ]
    assert cycles[1] < cycles[0]


def convolution_options(tried):
    model = alone(
        lambda builder, inputs: builder.aiOnnx.conv(inputs), [1, 64, 64, 64], [64, 64, 3, 3]
    )
    reports = [
        tried.make(model[0], [model[2]], convolutionOptions={"availableMemoryProportion": share})[0]
        .getReport()
        .model.cycles_per_step
        for share in ("0.6", "0.01")
    ]
    assert reports[0] < reports[1]
    unknown = {"availableMemoryProportion": "0.6", "partialType": "half"}
    with pytest.raises(popart.poplar_exception, match=r"^Unrecognised option .partialType."):
        tried.make(model[0], [model[2]], convolutionOptions=unknown)
    # Without a convolution, nothing reads it.
    with pytest.warns(UserWarning, match="sets partialType, which the cost model"):
        tried.make(tried.relu.proto, [tried.relu.y], convolutionOptions=unknown)


def outlined(tried):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [64, 64])
    inner = builder.createSubgraphBuilder()
    part = inner.addInputTensor("FLOAT", [64, 64])
    inner.addOutputTensor(inner.aiOnnx.matmul([part, inner.aiOnnx.tanh([part])]))
    y = x
    for _ in range(4):
        y = builder.aiGraphcore.call([y], 1, inner)[0]
    proto = builder.getModelProto()
    shared, own = (
        tried.make(proto, [y], enableOutlining=on)[0].getReport().model for on in (True, False)
    )
    assert shared.memory.code_bytes < own.memory.code_bytes


def dot_files(tried):
    folder = tried.folder / "pictures"
    checks = {popart.DotCheck.Final, popart.DotCheck.Fwd0}
    tried.session(dotChecks=checks, logDir=str(folder))
    assert sorted(path.name for path in folder.iterdir()) == ["final.dot", "fwd0.dot"]
    assert (folder / "final.dot").read_text() == "\n".join(
        [
            "digraph model {",
            '  n0 [shape="box", label="0. MatMul"];',
            '  n1 [shape="box", label="1. Relu"];',
            '  "input" [shape="ellipse"];',
            '  "init_input" [shape="ellipse"];',
            '  "input" -> n0 [label="input"];',
            '  "init_input" -> n0 [label="init_input"];',
            '  n0 -> n1 [label="MatMul:0"];',
            "}\n",
        ]
    )
    some = {"dotChecks": {"Final"}, "logDir": str(folder)}
    builder = popart.Builder()
    y = builder.aiOnnx.relu([builder.addInputTensor("FLOAT", [2])], "named")
    tried.make(builder.getModelProto(), [y], dotOpNames=True, **some)
    assert 'label="0. Relu (named)"' in (folder / "final.dot").read_text()
    for limits, kinds in ({"firstDotOp": 1}, ["Relu"]), ({"finalDotOp": 1}, ["MatMul"]):
        tried.session(**limits, **some)
        text = (folder / "final.dot").read_text()
        assert re.findall(r'label="\d\. (\w+)"', text) == kinds
    with pytest.warns(UserWarning, match=r"has DotCheck\.Bwd0, for which no file is written"):
        tried.session(dotChecks={"Bwd0"}, logDir=str(folder))
    with pytest.raises(
        popart.popart_exception, match=r"dotChecks cannot be written to .*final\.dot"
    ):
        tried.session(dotChecks={"Fwd1"}, logDir=str(folder / "final.dot"))


# What tries each of the other options.
ACTING = {
    **dict.fromkeys(("enableReplicatedGraphs", "replicatedGraphCount"), replicated),
    **dict.fromkeys(
        ("enableDistributedReplicatedGraphs", "globalReplicationFactor", "globalReplicaOffset"),
        distributed,
    ),
    **dict.fromkeys(("dotChecks", "dotOpNames", "firstDotOp", "finalDotOp", "logDir"), dot_files),
    **dict.fromkeys(("enableEngineCaching", "cachePath"), cached),
    "compileEngine": compiled_engine,
    "constantWeights": constant_weights,
    "convolutionOptions": convolution_options,
    "enableFloatingPointChecks": checked_numbers,
    "enableGradientAccumulation": accumulated,
    "enableLoadAndOffloadRNGState": random_state,
    "enableNonStableSoftmax": softmax,
    "enableOutlining": outlined,
    "enablePipelining": pipelined,
    "enableStochasticRounding": rounded_at_random,
    "enableSupportedDataTypeCasting": narrow_types,
    "engineOptions": engine_options,
    "groupNormStridedChannelGrouping": strided_groups,
    "instrumentWithHardwareCycleCounter": counted_cycles,
    "numIOTiles": io_tiles,
    "partialsTypeMatMuls": partials,
    "syntheticDataMode": synthetic,
    "virtualGraphMode": virtual_graphs,
    **dict.fromkeys(
        ("weightTensorLocationSettings", "activationTensorLocationSettings"), weights_elsewhere
    ),
}


def test_each_option_is_tried():
    tables = (IDLE, TRAINING, ACTING)
    assert sorted(name for table in tables for name in table) == sorted(SessionOptions.options())
    idle = {name for name, each in SessionOptions.options().items() if each.effect is Effect.NONE}
    assert idle == IDLE.keys()


@pytest.mark.parametrize("name", IDLE)
def test_what_changes_nothing_is_named_once_with_the_reason(tried, name):
    reason = SessionOptions.options()[name].why_idle
    assert reason.endswith(".")
    message = (
        rf"(?s)set but have no meaning here: .*\b{name}\b.* They change neither .* {name}: {reason}"
    )
    with pytest.warns(UserWarning, match=message) as warned:
        result = tried.result(**{name: IDLE[name]}, **NEEDED.get(name, {}))
    assert len(warned) == 1
    np.testing.assert_allclose(result, tried.relu.computed(tried.relu.data()), 1e-6, 1e-6)


@pytest.mark.parametrize("name", TRAINING)
def test_what_is_for_training_changes_nothing_in_inference(tried, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = tried.result(**{name: TRAINING[name]})
    np.testing.assert_allclose(result, tried.relu.computed(tried.relu.data()), 1e-6, 1e-6)


@pytest.mark.parametrize("check", dict.fromkeys(ACTING.values()), ids=lambda each: each.__name__)
def test_what_an_option_changes(tried, check):
    check(tried)


def trained_report(ipu_model, in_stages=True, **options):
    """The report of a session that trains two layers, each in a stage of its own."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [16, 64])
    values = x
    for part in range(2):
        w = builder.addInitializedInputTensor(np.full((64, 64), 0.01, np.float32))
        with builder.virtualGraph(part), builder.pipelineStage(part):
            values = builder.aiOnnx.tanh([builder.aiOnnx.matmul([values, w])])
    with builder.virtualGraph(1), builder.pipelineStage(1):
        loss = builder.aiGraphcore.identityloss([values])
    chosen = popart.SessionOptions()
    if in_stages:
        options = {"enablePipelining": True, **MANUAL, **options}
    options = {"enableGradientAccumulation": True, "accumulationFactor": 8, **options}
    for name, value in options.items():
        setattr(chosen, name, value)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss]),
        loss,
        popart.SGD({"defaultLearningRate": (0.1, True), "defaultMomentum": (0.9, True)}),
        ipu_model(2),
        userOptions=chosen,
    )
    session.prepareDevice()
    return session.getReport().model


REMOTE = popart.TensorLocationSettings(popart.TensorStorage.OffChip, 2, 64)
PLACES = ("activation", "accumulator", "optimizerState")


@pytest.mark.parametrize("place", PLACES)
def test_tensors_of_pipelines_that_train_can_be_elsewhere(ipu_model, place):
    option = {f"{place}TensorLocationSettings": REMOTE}
    here, there = trained_report(ipu_model), trained_report(ipu_model, **option)
    assert here.cycles_per_step < there.cycles_per_step
    if place != "activation":
        large = popart.TensorLocationSettings(popart.TensorStorage.OffChip, 64 * 64 + 1, 64)
        some = trained_report(ipu_model, **{f"{place}TensorLocationSettings": large})
        assert some.cycles_per_step == here.cycles_per_step


def test_locations_that_nothing_acts_on_are_named_once(ipu_model):
    options = {f"{place}TensorLocationSettings": REMOTE for place in PLACES}
    message = "^SessionOptions sets activation.*, optimizerState.*, accumulator.* without an effect"
    with pytest.warns(UserWarning, match=message) as warned:
        trained_report(ipu_model, in_stages=False, **options)
    assert len(warned) == 1


def test_recomputation_is_modelled(ipu_model):
    kept, again = (
        trained_report(ipu_model, autoRecomputation=kind)
        for kind in (popart.RecomputationType.NoRecompute, popart.RecomputationType.Standard)
    )
    assert (kept.options.recomputation, again.options.recomputation) == (False, True)
    assert kept.cycles_per_step < again.cycles_per_step

"""Models on several IPUs: virtual graphs, pipelines and replicas."""

import contextlib

import numpy as np
import pytest

from ipu_keras import popart

BATCHES = 4
TILES = 56
MODES = {
    "virtual graphs": {"virtualGraphMode": popart.VirtualGraphMode.Manual},
    "pipeline": {"virtualGraphMode": popart.VirtualGraphMode.Manual, "enablePipelining": True},
    "replicated pipeline": {
        "virtualGraphMode": popart.VirtualGraphMode.Manual,
        "enablePipelining": True,
        "enableReplicatedGraphs": True,
        "replicatedGraphCount": 2,
    },
}
NUM_IPUS = {"virtual graphs": 2, "pipeline": 2, "replicated pipeline": 4}


def convolutions(place=lambda builder, part: contextlib.nullcontext()):
    """Two convolutions and a product, each of them within what `place` opens for its part."""
    random = np.random.default_rng(0)
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [1, 3, 8, 8]))
    values = x
    for part, (given, made) in enumerate([(3, 4), (4, 6)]):
        kernel = random.normal(size=(made, given, 3, 3)).astype(np.float32)
        kernel = builder.addInitializedInputTensor(kernel)
        with place(builder, part):
            values = builder.aiOnnx.conv([values, kernel], pads=[1] * 4)
            values = builder.aiOnnx.relu([values])
    matrix = random.normal(size=(6 * 64, 5)).astype(np.float32)
    matrix = builder.addInitializedInputTensor(matrix)
    with place(builder, 1):
        values = builder.aiOnnx.flatten([values])
        y = builder.aiOnnx.matmul([values, matrix])
    builder.addOutputTensor(y)
    return builder.getModelProto(), x, y


def on_ipus_and_in_stages(builder, part):
    opened = contextlib.ExitStack()
    opened.enter_context(builder.virtualGraph(part))
    opened.enter_context(builder.pipelineStage(part))
    return opened


def images(count):
    return np.random.default_rng(1).normal(size=(count, 1, 3, 8, 8)).astype(np.float32)


def results(session_of, proto, x, y, given, **options):
    session, anchors = session_of(proto, [y], BATCHES, **options)
    session.run(popart.PyStepIO({x: given}, anchors))
    return anchors[y].reshape(len(given), -1), session


@pytest.mark.parametrize("mode", MODES)
def test_numbers_are_those_of_one_ipu(session_of, mode):
    options, num_ipus = MODES[mode], NUM_IPUS[mode]
    given = images(BATCHES * options.get("replicatedGraphCount", 1))
    placed = convolutions(on_ipus_and_in_stages)
    computed, _ = results(session_of, *placed, given, num_ipus=num_ipus, **options)
    whole = convolutions()
    parts = [results(session_of, *whole, part)[0] for part in np.split(given, len(given) // 4)]
    np.testing.assert_allclose(computed, np.concatenate(parts), rtol=1e-5, atol=1e-5)


def test_virtual_graphs_in_reports(session_of):
    placed = convolutions(on_ipus_and_in_stages)
    options = MODES["virtual graphs"]
    _, session = results(session_of, *placed, images(BATCHES), num_ipus=2, **options)
    _, alone = results(session_of, *convolutions(), images(BATCHES))
    report = session.getReport()
    assert report.num_ipus == 2
    # The second convolution takes what the first IPU has made: 4 channels of 8 by 8.
    assert "inter-IPU copy" in str(report)
    assert report.cycles_per_step > alone.getReport().cycles_per_step


def test_stages_in_reports(session_of):
    placed = convolutions(on_ipus_and_in_stages)
    _, session = results(session_of, *placed, images(BATCHES), num_ipus=2, **MODES["pipeline"])
    report = session.getReport()
    text = str(report)
    assert "It is for 2 IPUs in a pipeline of 2 stages" in text
    assert "inter-IPU copy" in text
    assert report.cycles_per_step > 0


def annotated(ipu, stage):
    """A builder's scopes by functions of the part."""

    def place(builder, part):
        opened = contextlib.ExitStack()
        if ipu(part) is not None:
            opened.enter_context(builder.virtualGraph(ipu(part)))
        if stage(part) is not None:
            opened.enter_context(builder.pipelineStage(stage(part)))
        return opened

    return place


def nothing(part):
    return None


def its_number(part):
    return part


@pytest.mark.parametrize(
    ("ipu", "stage", "mode", "text"),
    [
        (
            lambda part: part or None,
            nothing,
            "virtual graphs",
            r"either all nodes or none must be on a virtual graph.* Received: none for Conv ",
        ),
        (
            its_number,
            lambda part: part or None,
            "pipeline",
            r"each node must be in a pipeline stage.* Received: none for Conv ",
        ),
        (
            its_number,
            lambda part: 2 * part,
            "pipeline",
            r"numbered from 0 without gaps\. Received: stages 0, 2$",
        ),
        (its_number, lambda part: part + 1, "pipeline", r"Received: stages 1, 2$"),
        (
            its_number,
            lambda part: 0,
            "pipeline",
            "All nodes of a pipeline stage must be on one IPU",
        ),
        (lambda part: 0, lambda part: 0, "pipeline", r"needs two stages or more.*Received: 1$"),
        (
            lambda part: 2 * part,
            nothing,
            "virtual graphs",
            r"1 replicas .* of 3 IPUs each need a device of 3 IPUs.* Received: a device of 2$",
        ),
    ],
)
def test_annotations_that_contradict_each_other(ipu_model, ipu, stage, mode, text):
    proto, _, y = convolutions(annotated(ipu, stage))
    options = popart.SessionOptions()
    for name, value in MODES[mode].items():
        setattr(options, name, value)
    flow = popart.DataFlow(BATCHES, [y])
    with pytest.raises(popart.popart_exception, match=text):
        popart.InferenceSession(proto, flow, ipu_model(2), userOptions=options)


def products(size, place=lambda builder, part: contextlib.nullcontext()):
    """Two products with square matrices."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [1, size]))
    y = x
    for part in range(2):
        matrix = builder.addInitializedInputTensor(np.zeros((size, size), np.float32))
        with place(builder, part):
            y = builder.aiOnnx.matmul([y, matrix])
    return builder.getModelProto(), y


@pytest.mark.parametrize("mode", ["virtual graphs", "pipeline"])
def test_a_program_that_needs_two_ipus(ipu_model, mode):
    """Each matrix takes 19 MB, and is multiplied where it lies; these tiles have 35 MB."""
    proto, y = products(2200, on_ipus_and_in_stages)
    options = popart.SessionOptions()
    flow = popart.DataFlow(BATCHES, [y])
    one = popart.InferenceSession(proto, flow, ipu_model(1, tilesPerIPU=TILES), userOptions=options)
    with pytest.raises(popart.OutOfMemoryException):
        one.prepareDevice()
    for name, value in MODES[mode].items():
        setattr(options, name, value)
    two = popart.InferenceSession(proto, flow, ipu_model(2, tilesPerIPU=TILES), userOptions=options)
    two.prepareDevice()
    assert two.getReport().fits


def chain(ipus):
    """Exponentials, negated: each in a node of its own on one of these IPUs."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    y = x
    for ipu in ipus:
        with builder.virtualGraph(ipu):
            y = builder.aiOnnx.neg([builder.aiOnnx.exp([y])])
    return builder.getModelProto(), x, y


def chained(x, ipus):
    for _ in ipus:
        x = -np.exp(x)
    return x


@pytest.mark.parametrize("ipus", [(0, 1, 2), (2, 0, 1)])
def test_stages_follow_from_ipus(session_of, ipus):
    proto, x, y = chain(ipus)
    given = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    session, anchors = session_of(proto, [y], 6, num_ipus=3, **MODES["pipeline"])
    session.run(popart.PyStepIO({x: given}, anchors))
    np.testing.assert_allclose(anchors[y], chained(given, ipus), rtol=1e-5)
    assert session._configuration.pipeline.device_mapping == ipus


def test_data_that_goes_back_needs_stages(ipu_model):
    proto, _, y = chain((0, 1, 0))
    options = popart.SessionOptions()
    for name, value in MODES["pipeline"].items():
        setattr(options, name, value)
    text = r"Exp 'Exp:0/2' on IPU 0, which takes what IPU 1 makes.*builder\.pipelineStage\(k\)"
    with pytest.raises(popart.popart_exception, match=text):
        popart.InferenceSession(
            proto, popart.DataFlow(BATCHES, [y]), ipu_model(2), userOptions=options
        )


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("num_ipus", [2, 3])
def test_auto_shards_are_of_as_many_weights(session_of, num_ipus, pipelined):
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [1, 8]))
    matrices = [np.eye(8, dtype=np.float32) * factor for factor in range(2, 8)]
    y = x
    for matrix in matrices:
        y = builder.aiOnnx.matmul([y, builder.addInitializedInputTensor(matrix)])
    options = {"virtualGraphMode": popart.VirtualGraphMode.Auto, "enablePipelining": pipelined}
    given = np.ones((BATCHES, 1, 8), np.float32)
    computed, session = results(
        session_of, builder.getModelProto(), x, y, given, num_ipus=num_ipus, **options
    )
    np.testing.assert_allclose(computed, np.full((BATCHES, 8), 5040.0), rtol=1e-5)
    graph = session._loaded.model.graph
    counts = np.bincount([node.annotations["__ipu_number"] for node in graph.nodes])
    assert counts.tolist() == [6 // num_ipus] * num_ipus

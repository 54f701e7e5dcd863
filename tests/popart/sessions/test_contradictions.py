"""Options of sessions that contradict each other, the model, or what is returned."""

import numpy as np
import pytest

from ipu_keras import popart
from ipu_keras.popart import AnchorReturnType as Returns
from ipu_keras.popart import RecomputationType, RecomputeType

MIXED = "A mixture of auto and manual recomputation is not supported"


def negated(recompute=None, within=False):
    """A model whose node says so much of recomputation; or one in a graph that it calls."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    place = builder.createSubgraphBuilder() if within else builder
    y = place.aiOnnx.neg([place.addInputTensor("FLOAT", [2]) if within else x])
    if recompute is not None:
        place.recomputeOutput(y, recompute)
    place.addOutputTensor(y)
    if within:
        [y] = builder.aiGraphcore.call([x], 1, place)
    return builder.getModelProto(), y


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize(
    "chosen", [each for each in RecomputationType if each is not RecomputationType.NoRecompute]
)
def test_who_says_what_is_computed_again(session_of, chosen, within):
    proto, y = negated(RecomputeType.Recompute, within)
    with pytest.raises(popart.popart_exception, match=f"^{MIXED}: .*, and Neg 'Neg:0"):
        session_of(proto, [y], autoRecomputation=chosen)
    session_of(proto, [y])


@pytest.mark.parametrize("said", [None, RecomputeType.Undefined, RecomputeType.Checkpoint])
def test_what_is_kept_can_be_said_beside_a_choice(session_of, said):
    proto, y = negated(said)
    session_of(proto, [y], autoRecomputation=RecomputationType.Standard)


@pytest.mark.filterwarnings("ignore:These options are set but have no meaning here")
def test_loops_over_batches_need_copies_within_them(session_of):
    proto, y = negated()
    with pytest.raises(popart.popart_exception, match="needs useHostCopyOps"):
        session_of(proto, [y], enableExplicitMainLoops=True)
    session_of(proto, [y], enableExplicitMainLoops=True, useHostCopyOps=True)


@pytest.mark.parametrize(("stages", "wrong"), [((1, 0), 1), ((0, 2, 1), 2), ((0, 1, 2), None)])
def test_data_goes_through_the_stages_of_a_pipeline_in_their_order(ipu_model, stages, wrong):
    builder = popart.Builder()
    y = builder.addInputTensor("FLOAT", [2])
    for stage in stages:
        with builder.virtualGraph(stage), builder.pipelineStage(stage):
            y = builder.aiOnnx.neg([y])
    options = popart.SessionOptions()
    options.virtualGraphMode, options.enablePipelining = popart.VirtualGraphMode.Manual, True
    arguments = builder.getModelProto(), popart.DataFlow(6, [y]), ipu_model(4)
    if wrong is None:
        popart.InferenceSession(*arguments, userOptions=options)
        return
    text = f"^Data must go .* in stage {wrong - 1}, which takes 'Neg:0(/1)?' of stage {wrong}"
    with pytest.raises(popart.popart_exception, match=text):
        popart.InferenceSession(*arguments, userOptions=options)


def test_a_pipeline_that_no_model_is_of_runs_without_a_report_if_its_stages_fill(ipu_model):
    builder = popart.Builder()
    x = y = builder.addInputTensor("FLOAT", [2])
    for stage in range(2):
        with builder.virtualGraph(stage), builder.pipelineStage(stage):
            y = builder.aiOnnx.neg([y])
    options = popart.SessionOptions()
    options.virtualGraphMode, options.enablePipelining = popart.VirtualGraphMode.Manual, True
    proto, device = builder.getModelProto(), ipu_model(2)
    text = r"depth must equal at least the number of pipeline stages \(2\).* batchesPerStep=1$"
    with pytest.raises(popart.popart_exception, match=text):
        popart.InferenceSession(proto, popart.DataFlow(1, [y]), device, userOptions=options)
    session = popart.InferenceSession(proto, popart.DataFlow(3, [y]), device, userOptions=options)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    given = np.arange(6, dtype=np.float32).reshape(3, 2)
    session.run(popart.PyStepIO({x: given}, anchors))
    np.testing.assert_array_equal(anchors[y], given)
    with pytest.raises(popart.popart_exception, match="must be a multiple of 2, but it is 3"):
        session.getReport()


@pytest.mark.parametrize("batches", [1, 3])
def test_truth_values_are_not_added_up(ipu_model, batches):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    y = builder.aiOnnx.greater([x, x])
    count = builder.aiOnnx.cast([y], "INT32")
    text = f"^The anchor {y!r} is of the type BOOL, whose values cannot be added up"

    def session(*anchors):
        flow = popart.DataFlow(batches, dict.fromkeys(anchors, Returns("Sum")))
        return popart.InferenceSession(builder.getModelProto(), flow, ipu_model())

    wrong, right = session(y), session(count)
    for method in (wrong.initAnchorArrays, wrong.prepareDevice):
        with pytest.raises(popart.popart_exception, match=text):
            method()
    with pytest.raises(popart.popart_exception, match="Must call prepareDevice before run"):
        wrong.run(popart.PyStepIO({}, {}))
    right.prepareDevice()
    anchors = right.initAnchorArrays()
    right.run(popart.PyStepIO({x: np.zeros((batches, 2), np.float32)}, anchors))
    np.testing.assert_array_equal(anchors[count], [0, 0])

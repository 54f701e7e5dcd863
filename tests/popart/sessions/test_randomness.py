"""Models that draw random numbers, and those that do not."""

import logging

import numpy as np
import pytest

from ipu_keras import popart


def model(draws, within):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    place = builder.createSubgraphBuilder() if within else builder
    given = place.addInputTensor("FLOAT", [2]) if within else x
    y = place.aiOnnx.add([given, place.aiOnnx.randomnormal([2])]) if draws else given
    y = place.aiOnnx.neg([y])
    place.addOutputTensor(y)
    if within:
        [y] = builder.aiGraphcore.call([x], 1, place)
    return builder.getModelProto(), x, y


@pytest.fixture
def drawing(ipu_model):
    """Makes a session that draws, whose state may be read, and runs it."""
    proto, x, y = model(draws=True, within=False)
    options = popart.SessionOptions()
    options.enableLoadAndOffloadRNGState = True

    def make():
        flow = popart.DataFlow(1, [y])
        return popart.InferenceSession(proto, flow, ipu_model(), userOptions=options)

    def run(session):
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: np.zeros(2, np.float32)}, anchors))
        return anchors[y]

    return make, run


def test_a_session_goes_on_where_another_was_even_before_it_is_prepared(drawing):
    make, run = drawing
    first = make()
    first.setRandomSeed(11)
    first.prepareDevice()
    run(first)
    state, expected = first.getRNGState(), run(first)
    for is_prepared_first in (False, True):
        again = make()
        if is_prepared_first:
            again.prepareDevice()
        again.setRNGState(state)
        assert again.getRNGState() == state
        if not is_prepared_first:
            again.prepareDevice()
        np.testing.assert_array_equal(run(again), expected)
    # A seed begins anew.
    again.setRandomSeed(11)
    assert again.getRNGState() == [11, 0]


@pytest.mark.parametrize("draws", [False, True])
def test_a_state_is_that_of_stochastic_rounding_too(ipu_model, draws):
    """Executions round differently, and other sessions of the device change none of it."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT16", [64])
    half = builder.aiOnnx.constant(np.full(1, 2**-11, np.float16))
    outputs = [builder.aiOnnx.add([x, half])]
    if draws:
        outputs.append(builder.aiOnnx.randomnormal([2], 1))
    options = popart.SessionOptions()
    options.enableLoadAndOffloadRNGState = options.enableStochasticRounding = True

    def session(device):
        flow = popart.DataFlow(1, outputs)
        made = popart.InferenceSession(builder.getModelProto(), flow, device, userOptions=options)
        made.prepareDevice()
        return made

    def run(session):
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: np.ones(64, np.float16)}, anchors))
        return anchors[outputs[0]]

    device = ipu_model()
    first, other = session(device), session(device)
    first.setRandomSeed(11)
    other.setRandomSeed(12)
    before = run(first)
    state = first.getRNGState()
    assert (run(other) != before).any()
    after = run(first)
    assert state == [11, 1]
    assert (before != after).any()
    other.setRNGState(state)
    np.testing.assert_array_equal(run(other), after)
    first.setRandomSeed(11)
    np.testing.assert_array_equal(run(first), before)


def test_seeds_and_states_of_other_types(drawing):
    session = drawing[0]()
    with pytest.raises(TypeError, match=r"^A seed is an integer\. Received: seedValue='7'"):
        session.setRandomSeed("7")
    for state in (["1", "2"], [1.0, 2], [-1, 2], [1, 2**31]):
        with pytest.raises(popart.popart_exception, match="is what getRNGState returned: integers"):
            session.setRNGState(state)
    assert session.getRNGState() == [0, 0]
    session.setRNGState([np.int64(3), np.int32(4)])
    assert session.getRNGState() == [3, 4]


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("draws", [False, True])
def test_a_seed_that_changes_nothing_is_logged(session_of, caplog, draws, within):
    proto, x, y = model(draws, within)
    session, anchors = session_of(proto, [y])
    found = []
    with caplog.at_level(logging.WARNING, "popart.session"):
        for seed in (7, 8):
            session.setRandomSeed(seed)
            session.run(popart.PyStepIO({x: np.zeros(2, np.float32)}, anchors))
            found.append(anchors[y].copy())
    assert np.array_equal(*found) is not draws
    logged = [
        f"Trying to set the random seed to {seed}, but the model has no random operation that "
        "would draw from it. This changes nothing."
        for seed in (7, 8)
    ]
    assert caplog.messages == ([] if draws else logged)

"""Arguments of sessions that are of other types than documented."""

import re

import numpy as np
import pytest

from ipu_keras import popart


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("dataFlow", {"y": "All"}, "Make one with popart.DataFlow(batchesPerStep, {"),
        ("dataFlow", None, "NoneType. Make one with popart.DataFlow("),
        ("deviceInfo", None, "its acquire methods return None where none is free"),
        ("deviceInfo", "ipu", "Get one of a popart.DeviceManager"),
        ("inputShapeInfo", {"x": [2]}, "Make one with popart.InputShapeInfo(), and `add` shapes"),
        ("patterns", ["InPlace"], "Make one with popart.Patterns(), or leave it out"),
        ("userOptions", None, "Make one with popart.SessionOptions(), or leave it out"),
        ("userOptions", {"constantWeights": True}, "Make one with popart.SessionOptions()"),
    ],
)
def test_what_was_received_and_where_to_get_what_is_needed(relu, ipu_model, name, value, advice):
    arguments = {"dataFlow": popart.DataFlow(1, [relu.y]), "deviceInfo": ipu_model(), name: value}
    kind = name[0].upper() + name[1:] if name != "userOptions" else "SessionOptions"
    text = f"`{name}` must be a popart.{kind}. Received: {name}={value!r} of type "
    with pytest.raises(TypeError, match=f"^{re.escape(text)}.*{re.escape(advice)}"):
        popart.InferenceSession(relu.proto, **arguments)


def test_shapes_that_are_none():
    infos = popart.InputShapeInfo()
    with pytest.raises(TypeError, match=r"^`tensorInfo` must be .* Received: \[2\] for 'x'\. Make"):
        infos.add("x", [2])
    assert not infos.has("x")


def test_weights_that_are_a_dictionary(relu, session_of):
    session, _ = session_of(relu.proto, [relu.y], constantWeights=False)
    with pytest.raises(TypeError, match=r"^Weights are given in a PyWeightsIO\. Received: \{"):
        session.writeWeights({relu.w: np.ones((3, 4), np.float32)})

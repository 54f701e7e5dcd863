import logging
import re

import numpy as np
import pytest

from ipu_keras import popart

SECONDS = re.compile(r" took \d+\.\d{3} s$")


def told(caplog):
    """Level and text of messages of sessions, without times."""
    found = [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "popart.session"]
    return [(level, SECONDS.sub(" took", text)) for level, text in found]


def test_sessions_tell_what_they_do(relu, session_of, caplog):
    caplog.set_level(logging.DEBUG, "popart.session")
    session, arrays = session_of(relu.proto, [relu.y], 3, constantWeights=False)
    assert told(caplog) == [
        ("INFO", "Compiling the program"),
        ("INFO", "Compiling the program took"),
    ]
    caplog.clear()
    session.weightsFromHost()
    session.run(popart.PyStepIO({relu.x: relu.data(3)}, arrays))
    assert told(caplog) == [
        ("DEBUG", "Giving the device the host's weights"),
        ("DEBUG", "Giving the device the host's weights took"),
        ("DEBUG", "Running a step"),
        ("DEBUG", f"Copies {relu.x}, {3 * 2 * 3 * 4} bytes, to the device"),
        ("DEBUG", f"Copies {relu.y}, {3 * 2 * 4 * 4} bytes, to the host"),
        ("DEBUG", "Running a step took"),
    ]


def test_a_level_says_how_much(relu, session_of, caplog):
    caplog.set_level(logging.INFO, "popart.session")
    session, arrays = session_of(relu.proto, [relu.y])
    caplog.clear()
    session.run(popart.PyStepIO({relu.x: relu.data()}, arrays))
    assert told(caplog) == []


def test_what_fails_is_not_told_to_be_done(relu, session_of, caplog):
    session, arrays = session_of(relu.proto, [relu.y])
    caplog.set_level(logging.DEBUG, "popart.session")
    with pytest.raises(popart.popart_exception, match="Unexpected number of input elements"):
        session.run(popart.PyStepIO({relu.x: np.zeros(1, np.float32)}, arrays))
    assert told(caplog) == [("DEBUG", "Running a step")]

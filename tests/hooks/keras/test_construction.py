import os
import subprocess
import sys

import pytest

WRAPPED_BY_OTHERS = """
import functools
import keras

def wrap():
    original, calls = keras.Model.__new__, []

    @functools.wraps(original)
    def __new__(cls, *args, **kwargs):
        calls.append(cls)
        return original(cls, *args, **kwargs)

    keras.Model.__new__ = __new__
    return calls

{first}
{second}
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras.extensions import ModelExtension, SequentialExtension

class Own(keras.Model):
    pass

with IPUStrategy().scope():
    models = keras.Sequential(), Own()
assert isinstance(models[0], SequentialExtension), type(models[0]).__mro__
assert isinstance(models[1], ModelExtension), type(models[1]).__mro__
assert not isinstance(keras.Sequential(), ModelExtension)
assert len(calls) == 3, calls
"""


@pytest.mark.parametrize(
    "lines", [("calls = wrap()", "import ipu_keras"), ("import ipu_keras", "calls = wrap()")]
)
def test_models_are_extended_when_another_library_wraps_their_making(lines):
    first, second = lines
    script = WRAPPED_BY_OTHERS.format(first=first, second=second)
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    process = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert process.returncode == 0, process.stderr

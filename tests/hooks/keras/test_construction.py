import os
import subprocess
import sys

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


def test_models_are_extended_when_another_library_has_wrapped_their_making():
    script = WRAPPED_BY_OTHERS.format(first="calls = wrap()", second="import ipu_keras")
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    process = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert process.returncode == 0, process.stderr


def test_models_are_extended_when_another_library_wraps_their_making_later(run_forked):
    run_forked(WRAPPED_BY_OTHERS.format(first="import ipu_keras", second="calls = wrap()"))

"""The package adds no line to what TensorFlow's libraries write about themselves."""

import os
import re
import subprocess
import sys

import pytest

FIT = """
import keras, numpy as np
from tensorflow.python import ipu
with ipu.ipu_strategy.IPUStrategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
model.compile("adam", "mse", steps_per_execution=2, jit_compile=True)
model.fit(np.zeros((8, 4), np.float32), np.zeros((8, 3), np.float32), batch_size=4, verbose=0)
"""
PROFILE = """
import tensorflow as tf, ipu_keras
ipu_keras.profile(lambda x: x @ x, tf.TensorSpec((8, 8)))
"""
FUNCTION = """
import tensorflow as tf
from tensorflow.python import ipu
strategy = ipu.ipu_strategy.IPUStrategy()
with strategy.scope():
    run = tf.function(lambda x: ipu.loops.repeat(3, lambda y: y * 2.0, [x]))
    strategy.run(run, [tf.constant(2.0)])
"""
SESSION = """
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
ipu.config.IPUConfig().configure_ipu_system()
with tf.Graph().as_default(), tf.Session() as session:
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        (y,) = ipu.ipu_compiler.compile(
            lambda: ipu.loops.repeat(3, lambda y: y * 2.0, [tf.constant(2.0)])
        )
    session.run(y)
"""
STOCK_SESSION = """
import tensorflow.compat.v1 as tf
with tf.Graph().as_default(), tf.Session() as session:
    session.run(tf.constant(2.0))
"""


def sources_of_notes(script: str, **environment: str) -> set[str]:
    """The files of C++ whose notes a process wrote: `I0000 00:00:1.5 7 port.cc:1] ...`."""
    given = {k: v for k, v in os.environ.items() if not k.startswith("TF_")}
    process = subprocess.run(
        [sys.executable, "-c", script],
        env={**given, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return set(re.findall(r"^[IWE]\d{4} \S+ +\d+ ([\w.]+):\d+\]", process.stderr, re.MULTILINE))


@pytest.fixture(scope="module")
def of_tensorflow() -> set[str]:
    found = sources_of_notes(STOCK_SESSION)
    # Else the test below could not fail.
    assert "port.cc" in found or "cpu_feature_guard.cc" in found
    return found


def test_no_notes_but_those_of_importing_tensorflow(of_tensorflow):
    script = "\n".join([FIT, PROFILE, FUNCTION, SESSION])
    assert sources_of_notes(script) <= of_tensorflow


def test_who_asks_for_notes_gets_them():
    assert "service.cc" in sources_of_notes(FIT, TF_CPP_MIN_LOG_LEVEL="0")

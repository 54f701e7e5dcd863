"""Scripts of TensorFlow 1, each in a process of its own.

One starts as a user's does; the others have TensorFlow imported already, as it would be first.
"""

import os
import re
import subprocess
import sys

import pytest

TRAINING = """
import tensorflow as tf
import numpy as np
import tensorflow.train
import tensorflow.python.ipu as ipu_by_name
from tensorflow import logging
from tensorflow.losses import mean_squared_error
from tensorflow.python import ipu
from helper import network

FLAGS = tf.flags.FLAGS
tf.flags.DEFINE_integer("steps", 1, "how many")


def main(arguments):
    assert not tf.executing_eagerly() and ipu_by_name is ipu
    assert tensorflow.train.AdamOptimizer is tf.train.AdamOptimizer
    logging.set_verbosity(logging.ERROR)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    x = np.arange(8, dtype=np.float32).reshape(4, 2) / 8
    dataset = tf.data.Dataset.from_tensors((x, x.sum(axis=1, keepdims=True))).repeat()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def step(x, y):
        loss = mean_squared_error(y, network(x))
        train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
        return outfeed.enqueue(loss), train

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        run = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(FLAGS.steps, step, [], infeed))
    losses = outfeed.dequeue()
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), infeed.initializer])
        session.run(run)
        print(*session.run(losses), *arguments[1:])


if __name__ == "__main__":
    tf.app.run(main)
"""

HELPER = """
import tensorflow as tf


def network(x):
    return tf.layers.dense(x, 1, kernel_initializer=tf.ones_initializer(), use_bias=False) + 1.0
"""


def started(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "ipu_keras.tf1", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
        timeout=120,
    )


@pytest.fixture
def run(run_forked):
    """Does what `started` does."""

    def run(folder, *arguments):
        script = f"""
            import os, runpy, sys
            os.chdir({str(folder)!r})
            sys.path.insert(0, {str(folder)!r})
            runpy.run_module("ipu_keras.tf1", run_name="__main__", alter_sys=True)
            """
        return run_forked(script, *arguments, check=False)

    return run


@pytest.fixture
def scripts(tmp_path):
    folder = tmp_path / "scripts"
    folder.mkdir()

    def write(**sources):
        for name, source in sources.items():
            (folder / f"{name}.py").write_text(source)
        return tmp_path

    return write


def test_a_script_with_its_own_modules_and_arguments(scripts):
    folder = scripts(training=TRAINING, helper=HELPER)
    process = started(folder, "scripts/training.py", "--steps=3", "rest")
    assert process.returncode == 0, process.stderr
    *losses, rest = process.stdout.split()
    assert rest == "rest"
    # From weights of ones the sum is right but for the 1.0 that the network adds.
    assert [float(loss) for loss in losses] == pytest.approx(expected(3), rel=1e-5)


def expected(steps):
    x = [[2 * row / 8, (2 * row + 1) / 8] for row in range(4)]
    weights, losses = [1.0, 1.0], []
    for _ in range(steps):
        errors = [sum(w * v for w, v in zip(weights, row, strict=True)) + 1 - sum(row) for row in x]
        losses.append(sum(e * e for e in errors) / 4)
        gradients = [sum(2 * e * row[k] for e, row in zip(errors, x, strict=True)) for k in (0, 1)]
        weights = [w - 0.5 * g / 4 for w, g in zip(weights, gradients, strict=True)]
    return losses


CELLS = """
import sys
import keras
import tensorflow as tf
import tensorflow.compat.v1 as v1
from tensorflow import keras as tf_keras

cell = tf.nn.rnn_cell.BasicLSTMCell(4)
outputs, _ = tf.nn.dynamic_rnn(cell, tf.ones([2, 3, 1]), dtype=tf.float32)
assert v1.layers is tf.layers and tf.compat.v1 is v1
assert tf_keras.layers.Dense is keras.layers.Dense
assert "Session" in dir(tf) and tf.__version__[0] == "2"
# Libraries have the TensorFlow that they ask for.
assert not hasattr(keras.src.backend.tensorflow.core.tf, "Session")
print(outputs.shape, sys.argv[1:])
"""


def test_cells_and_libraries_in_a_module(run, scripts):
    process = run(scripts(cells=CELLS) / "scripts", "-m", "cells", "--steps", "-m")
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == "(2, 3, 4) ['--steps', '-m']"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import tensorflow as tf; tf.contrib", "AttributeError: .*has no `tf.contrib`: IPU soft"),
        (
            "from tensorflow.contrib import ipu",
            "No module named 'tensorflow.contrib'\nTensorFlow 2 has no `tf.contrib`",
        ),
        ("raise KeyError('of the user')", "KeyError: 'of the user'"),
    ],
)
def test_errors_of_scripts(run, scripts, source, text):
    process = run(scripts(wrong=source), "scripts/wrong.py")
    assert process.returncode == 1
    assert re.search(text, process.stderr)


@pytest.mark.parametrize("arguments", [("scripts/wrong.py",), ("-m", "scripts.wrong")])
def test_what_scripts_raise_is_shown_with_their_own_lines_only(scripts, arguments):
    folder = scripts(wrong="import sys; sys.path.append('scripts')\nimport lib", lib="{}['key']")
    process = started(folder, *arguments)
    files = re.findall(r'File ".*?(\w+)\.py", line (\d), in <module>', process.stderr)
    assert files == [("wrong", "2"), ("lib", "1")]
    assert process.stderr.count("File ") == 2
    assert process.stderr.endswith("KeyError: 'key'\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "give the script that is to run, or -m and the name of a module"),
        (("absent.py",), "there is no script 'absent.py'"),
    ],
)
def test_nothing_to_run(run, tmp_path, arguments, text):
    process = run(tmp_path, *arguments)
    assert process.returncode == 2
    assert text in process.stderr

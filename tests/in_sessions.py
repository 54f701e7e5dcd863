"""Programs in graphs of sessions, and scripts in processes of their own."""

import os
import subprocess
import sys
import textwrap

import tensorflow as tf

from ipu_keras import ipu_compiler, scopes
from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.machine.system import SYSTEM


def configure(num_ipus):
    """/device:IPU:0 with so many IPUs, whatever was before."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = num_ipus
    config.configure_ipu_system()


def counting(end=10**6):
    """A dataset of the numbers 0.0, 1.0 and so on."""
    return tf.data.Dataset.range(end).map(lambda number: tf.cast(number, tf.float32))


def compiled(computation, inputs=None, ordinal=0):
    """What `ipu_compiler.compile` returns on a device."""
    with scopes.ipu_scope(f"/device:IPU:{ordinal}"):
        return ipu_compiler.compile(computation, inputs)


def opened(*operations):
    """A session of the current graph, after its variables are initialized, and what else."""
    session = tf.compat.v1.Session()
    session.run([tf.compat.v1.global_variables_initializer(), *operations])
    return session


def run_script(script, *arguments, timeout=120):
    """What a script prints that runs in a process of its own, and ends well there."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=timeout,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()

"""A table on the host, and what training it does, in NumPy."""

import contextlib
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.embedding_ops import (
    HostEmbeddingOptimizerSpec,
    HostEmbeddingSGDGAOptimizerSpec,
    create_host_embedding,
)

_RANDOM = np.random.default_rng(0)
TABLE = _RANDOM.standard_normal((10, 3)).astype(np.float32)
# Six batches of five ids, some of them several times.
BATCHES = _RANDOM.integers(0, 10, (6, 5)).astype(np.int32)
SGD = HostEmbeddingOptimizerSpec(0.1)
NOT_REGISTERED = "Host embedding interface with id='words' not registered"

# Of a large table, and of a step that looks it up.
ROWS, ENCODING, IDS = 10**6, 64, 4096
MEGABYTES = ROWS * ENCODING * 4 / 2**20


def trained(table, batches, rate, num_batches=1):
    """The table and the losses of training it to have rows of small squares.

    Args:
        table: An array.
        batches: Ids of each step.
        rate: The learning rate.
        num_batches: After so many the gradients are subtracted.
    """
    table, losses, gradients = table.copy(), [], []
    for ids in batches:
        rows = table[ids]
        losses.append((rows**2).sum())
        gradients.append((ids, 2 * rows))
        if len(gradients) == num_batches:
            for indices, gradient in gradients:
                np.subtract.at(table, indices, rate * gradient)
            gradients = []
    return table, losses


def words(spec=SGD, table=TABLE, **options):
    return create_host_embedding(
        "words", table.shape, table.dtype, optimizer_spec=spec, initializer=table, **options
    )


def loss_of(embedding, ids):
    """Trains rows to be small; the optimizer of a program would be given no variables."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(embedding.lookup(ids) ** 2)
    tape.gradient(loss, [])
    return loss


def spec_of(num_batches):
    if num_batches == 1:
        return HostEmbeddingOptimizerSpec(0.1)
    return HostEmbeddingSGDGAOptimizerSpec(0.1, num_batches)


@contextlib.contextmanager
def configured_strategies():
    """Strategies by the number of IPUs of their device: 1 and 2."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = [1, 2]
    config.configure_ipu_system()
    yield {count: IPUStrategy(f"/device:IPU:{count - 1}") for count in (1, 2)}
    SYSTEM.reset()


def memory(kind):
    """Of this process in MB: `"VmRSS"`, or `"VmHWM"`, the most since the last reset."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{kind}:\s+(\d+)", status)[1]) / 1024


def growth(run):
    """The most MB that a call takes beyond those before it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("this system does not let a process reset its peak of memory")
    before = memory("VmRSS")
    run()
    return memory("VmHWM") - before


def large(spec, rows=ROWS):
    initializer = tf.compat.v1.zeros_initializer
    shape = (rows, ENCODING)
    return create_host_embedding(
        "words", shape, tf.float32, optimizer_spec=spec, initializer=initializer
    )

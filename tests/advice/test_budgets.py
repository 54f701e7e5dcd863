"""What helps a program to keep a budget, by the model itself."""

from dataclasses import replace

import pytest
import tensorflow as tf

from ipu_keras import profile
from ipu_keras.advice.budgets import Limits, remedies
from ipu_keras.cost.passes import model_graph

SPEC = tf.TensorSpec((256, 1024))
WEIGHTS = tf.TensorSpec((1024, 1024))


@pytest.fixture(scope="module")
def report():
    return profile(lambda x, w: x @ w, SPEC, WEIGHTS, batch_size=256)


def limits_of(report, cycles=None, share=1.0, ipus=1):
    tile_bytes = int(report.model.memory.max_tile_bytes * share)
    return Limits(max_cycles=cycles, max_tile_bytes=tile_bytes, max_ipus=ipus)


def test_nothing_is_looked_for_if_it_is_kept(report):
    def never(size):
        raise AssertionError(size)

    limits = limits_of(report, cycles=report.cycles_per_step)
    assert remedies(report.model, limits, batch_size=256, with_batch=never) == ()


def test_each_remedy_is_what_the_model_says(report):
    model = report.model
    found = remedies(model, limits_of(report, cycles=report.cycles_per_step // 2))
    assert {"steps_per_execution": 32} in [one.changes for one in found]
    for one in found:
        options = replace(model.options, **one.changes)
        changed = model_graph(model.name, model.graph, model.target, options)
        assert one.cycles_per_step == changed.cycles_per_step < report.cycles_per_step
        assert one.max_tile_bytes == changed.memory.max_tile_bytes
        assert one.keeps == (one.cycles_per_step <= report.cycles_per_step // 2)
    assert [one.keeps for one in found] == sorted((one.keeps for one in found), reverse=True)


def test_remedies_for_memory(report):
    limits = limits_of(report, share=0.7, ipus=2)
    found = remedies(report.model, limits)
    assert {"dtype": "float16"} in [one.changes for one in found]
    assert all(one.max_tile_bytes < report.model.memory.max_tile_bytes for one in found)
    assert not any(one.changes.get("num_ipus", 1) > 2 for one in found)
    kept = [one for one in found if one.keeps]
    assert all(one.max_tile_bytes <= limits.max_tile_bytes for one in kept)
    assert [one.cycles_per_step for one in kept] == sorted(one.cycles_per_step for one in kept)


def test_smaller_batches(report):
    asked = []

    def with_batch(size):
        asked.append(size)
        if size == 64:
            return None
        return profile(lambda x, w: x @ w, tf.TensorSpec((size, 1024)), WEIGHTS).model

    limits = limits_of(report, share=0.6)
    found = remedies(report.model, limits, batch_size=256, with_batch=with_batch)
    assert asked == [128, 64]
    [smaller] = [one for one in found if "batch_size" in one.changes]
    assert smaller.changes == {"batch_size": 128}
    assert str(smaller).startswith("batch size 128: ")
    assert str(smaller).endswith(f"{smaller.max_tile_bytes:,} bytes on the fullest tile")


def test_what_takes_the_least_time_per_sample_is_first(report):
    """Of two smaller batches, the smaller one takes less time for a step and more for a sample."""
    models = {
        size: profile(lambda x, w: x @ w, tf.TensorSpec((size, 1024)), WEIGHTS).model
        for size in (128, 64)
    }
    cycles = {size: model.cycles_per_step for size, model in models.items()}
    assert cycles[64] < cycles[128] < 2 * cycles[64]
    limits = limits_of(report, share=0.8)
    found = remedies(report.model, limits, batch_size=256, with_batch=models.get)
    smaller = [one for one in found if "batch_size" in one.changes]
    assert [(one.changes["batch_size"], one.keeps) for one in smaller] == [(128, True), (64, True)]

"""Tables of choices for Keras models and functions."""

import numpy as np
import pytest
import tensorflow as tf
from image_classifier import IMAGES, LABELS, VECTORS, image_classifier, wide_classifier

from ipu_keras import profile, what_if
from ipu_keras.machine.target import target_named


def test_a_batch_size_that_only_choices_know():
    specs = tf.TensorSpec((None, 8, 8, 1)), tf.TensorSpec((None,), tf.int32)
    (row,) = what_if(image_classifier(), *specs, batch_size=16).rows
    assert row.report.batch_size == 16
    with pytest.raises(ValueError, match=r"`what_if` takes `batch_size`.*\(None, 8, 8, 1\)"):
        what_if(image_classifier(), *specs, num_ipus=[1, 2])


def test_what_if():
    model = image_classifier()
    table = what_if(
        model, IMAGES, LABELS, batch_size=[4, 64], target=["gc200", "bow"], steps_per_execution=16
    )
    assert [dict(row.choices) for row in table.rows] == [
        {"batch_size": size, "target": target, "steps_per_execution": 16}
        for size in (4, 64)
        for target in ("gc200", "bow")
    ]
    alone = profile(
        model,
        tf.TensorSpec((64, 8, 8, 1)),
        tf.TensorSpec((64,), tf.int32),
        target="bow",
        steps_per_execution=16,
    )
    last = table.rows[-1]
    assert last.report.cycles_per_step == alone.cycles_per_step
    assert last.samples_per_second == 64 / alone.seconds_per_step
    assert table.best is last
    text = str(table)
    assert "What if: classifier.train" in text
    (starred,) = (line for line in text.splitlines() if "*" in line)
    assert "bow" in starred
    assert f"{alone.cycles_per_step:,}" in starred


@pytest.mark.parametrize(
    "sizes", [[2, 4], (2, 4), range(2, 6, 2), np.array([2, 4]), [np.int64(2), np.int32(4)]]
)
def test_lists_of_sizes(sizes):
    table = what_if(tf.abs, IMAGES, batch_size=sizes, num_ipus=range(1, 3))
    assert [tuple(row.choices.values()) for row in table.rows] == [(2, 1), (2, 2), (4, 1), (4, 2)]
    assert {type(row.choices["batch_size"]) for row in table.rows} == {int}


def test_what_if_leaves_other_axes_alone():
    """Weights have no batch, and a scalar no axis."""
    specs = tf.TensorSpec((8, 64)), tf.TensorSpec((64, 10)), tf.TensorSpec(())
    (row,) = what_if(lambda x, w, scale: x @ w * scale, *specs, target=["bow"]).rows
    assert row.choices == {"batch_size": 8, "target": "bow"}
    assert row.report.flops_per_step == 2 * 8 * 64 * 10 + 8 * 10
    few, many = what_if(lambda x, scale: x * scale, specs[0], specs[2], batch_size=[2, 16]).rows
    assert (few.report.flops_per_step, many.report.flops_per_step) == (2 * 64, 16 * 64)


def test_what_if_over_precision_ipus_and_recomputation():
    """The star is at the fewest IPUs that fit, though two have more of their choices fit."""
    table = what_if(
        wide_classifier(),
        VECTORS,
        LABELS,
        dtype=["float32", "float16"],
        num_ipus=[2, 1],
        recomputation=[False, True],
    )
    assert len(table.rows) == 8
    assert table.best.choices == {
        "batch_size": 16,
        "dtype": "float16",
        "num_ipus": 1,
        "recomputation": False,
    }
    bytes_of = {tuple(row.choices.values()): row.report.model.memory for row in table.rows}
    largest = bytes_of[16, "float32", 1, False].max_tile_bytes
    needed = bytes_of[16, "float16", 1, False].max_tile_bytes
    assert needed < largest
    # What four IPUs need, and one does not have.
    (four,) = what_if(wide_classifier(), VECTORS, LABELS, dtype="float16", num_ipus=4).rows
    tight = target_named("gc200").with_numbers(tile_bytes=four.report.model.memory.max_tile_bytes)
    again = what_if(
        wide_classifier(),
        VECTORS,
        LABELS,
        target=tight,
        dtype=["float32", "float16"],
        num_ipus=[1, 4],
    )
    assert again.best.choices["num_ipus"] == 4


def test_of_what_does_not_fit_nothing_is_best():
    tiny = target_named("gc200").with_numbers(tile_bytes=1000)
    table = what_if(lambda x: x @ x, tf.TensorSpec((64, 64)), target=[tiny])
    assert table.best is None
    assert "*" not in str(table)
    assert table.rows[0].choices["batch_size"] == 64


def test_a_choice_needs_a_value():
    with pytest.raises(
        ValueError, match=r"`target` needs at least one value\. Received: target=\[\]"
    ):
        what_if(lambda x: x, IMAGES, target=[])

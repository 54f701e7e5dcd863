"""Reports of steps with stages, or with a weight update after several of them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import last_report, profile, what_if
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.pipelining_ops import RecomputationMode, recomputation_checkpoint
from ipu_keras.program import WEIGHT_UPDATE_SCOPE, Pipeline, stage_scope


def pipelined_step():
    """Two layers in the scopes of stages, and an optimizer in that of the weight update."""
    first = keras.layers.Dense(512, activation="relu", name="first")
    second = keras.layers.Dense(512, name="second")
    first.build((16, 512))
    second.build((16, 512))
    weights = [*first.trainable_weights, *second.trainable_weights]
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build(weights)

    def step(x):
        with tf.GradientTape() as tape:
            with tf.name_scope(stage_scope(0)):
                h = first(x)
            with tf.name_scope(stage_scope(1)):
                loss = tf.reduce_mean(second(h) ** 2)
        gradients = tape.gradient(loss, weights)
        with tf.name_scope(WEIGHT_UPDATE_SCOPE):
            optimizer.apply(gradients, weights)
        return loss

    return step


def test_a_function_with_stages():
    step, spec = pipelined_step(), tf.TensorSpec((16, 512))
    whole = profile(step, spec, batch_size=16)
    report = profile(
        step,
        spec,
        batch_size=16,
        gradient_accumulation_count=8,
        num_replicas=2,
        pipeline=Pipeline(device_mapping=(0, 1)),
    )
    assert report.model.options.steps_per_execution == 8
    assert report.samples_per_second == pytest.approx(32 / report.seconds_per_step)
    # Both products of the forward pass, and the gradients of weights and of what is between.
    products = [(row.stage, row.backward) for row in report.rows if row.family == "dot"]
    assert sorted(products) == [(0, False), (0, True), (1, False), (1, True), (1, True)]
    assert {row.layer for row in report.rows if row.stage == 0 and "dot" in row.family} == {
        row.layer for row in whole.rows if row.family == "dot" and "first" in row.layer
    }
    # Every layer of the optimizer is in the weight update, on the IPU of its variable.
    updates = [row for row in report.rows if row.weight_update]
    assert {row.ipu for row in updates} == {0, 1}
    assert all(row.weight_update for row in report.rows if "adam" in row.layer)
    sums = [row for row in report.rows if row.family == "collective"]
    assert len(sums) == 4  # two kernels and two biases
    assert report.pipeline.num_micro_batches == 8
    assert set(report.model.program.stashes.values()) == {2}


def test_checkpoints_of_a_model_with_a_pipeline():
    """The first stage computes eight layers again: all at once, or four at a time."""

    def dense(x, k):
        with tf.name_scope(f"dense_{k}"):
            return tf.tanh(tf.matmul(x, weights[k]))

    def step(x, checkpoints):
        with tf.GradientTape() as tape:
            for k in range(9):
                with tf.name_scope(stage_scope(k // 8)):
                    x = dense(x, k)
                    x = recomputation_checkpoint(x) if k in checkpoints else x
            loss = tf.reduce_sum(x * x)
        return tape.gradient(loss, weights)

    weights = [tf.Variable(tf.ones((64, 64))) for _ in range(9)]
    pipeline = Pipeline(
        device_mapping=(0, 1),
        recomputation_mode=RecomputationMode.RecomputeAndBackpropagateInterleaved,
    )
    options = {"pipeline": pipeline, "recomputation": True, "gradient_accumulation_count": 4}
    without, having = (
        profile(lambda x, found=found: step(x, found), tf.TensorSpec((16384, 64)), **options)
        for found in ((), (3,))
    )
    size = 4 * 16384 * 64
    peaks = [
        max(
            live
            for one, live in zip(
                found.model.program.compute_sets, found.model.memory.live_by_ipu[0], strict=True
            )
            if one.recomputed and one.family == "elementwise"
        )
        for found in (without, having)
    ]
    assert peaks[0] - peaks[1] > 2 * size


def test_accumulation_without_a_pipeline():
    step, spec = pipelined_step(), tf.TensorSpec((16, 512))
    once, many = (profile(step, spec, gradient_accumulation_count=n) for n in (1, 16))
    # Adam's work is shared by 16 steps; adding the gradients up takes less.
    assert many.compute_cycles < once.compute_cycles
    size = 4 * 2 * (512 * 512 + 512)
    variables = [one.model.memory.bytes_by_category["variables"] for one in (once, many)]
    assert variables[1] - variables[0] >= size


def test_pipelines_need_stages():
    with pytest.raises(ValueError, match="No operation is in a stage of the pipeline"):
        profile(
            lambda x: x @ x,
            tf.TensorSpec((8, 8)),
            steps_per_execution=2,
            pipeline=Pipeline(device_mapping=(0, 1)),
        )


def pipelined_classifier(strategy):
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(4)]
        )
    model.compile("sgd", "mse", steps_per_execution=4, jit_compile=False)
    model.set_pipeline_stage_assignment([0, 1])
    model.set_pipelining_options(4)
    return model


def test_a_model_is_profiled_as_it_was_set(strategy):
    model = pipelined_classifier(IPUStrategy("/device:IPU:2"))
    x, y = np.zeros((32, 8), np.float32), np.zeros((32, 4), np.float32)
    model.fit(x, y, batch_size=4, verbose=0)
    ran = last_report(2)
    assert ran.model.options.pipeline.device_mapping == (0, 1)
    assert ran.model.options.num_replicas == 1
    specs = tf.TensorSpec((4, 8)), tf.TensorSpec((4, 4))
    report = profile(model, *specs)
    assert report.cycles_per_step == ran.cycles_per_step
    assert {row.stage for row in report.rows} == {0, 1, None}
    assert profile(model, specs[0]).model.options.gradient_accumulation_count == 1
    model.reset_pipeline_stage_assignment()
    model.set_gradient_accumulation_options(8)
    assert profile(model, *specs).model.options.gradient_accumulation_count == 8
    assert profile(model, *specs).model.options.pipeline is None


def test_accumulation_shares_the_weight_update():
    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(256)])
    model.compile("sgd", "mse")
    specs = tf.TensorSpec((1, 256)), tf.TensorSpec((1, 256))
    table = what_if(model, *specs, gradient_accumulation_count=[2, 8])
    two, eight = (row.report for row in table.rows)
    assert eight.model.host_cycles < two.model.host_cycles
    update = [row for row in eight.rows if row.weight_update]
    assert update
    assert {row.stage for row in eight.rows} == {None}


def test_a_train_step_of_ones_own_has_no_known_parts():
    class Own(keras.Sequential):
        def train_step(self, data):
            return super().train_step(data)

    model = Own([keras.Input((8,)), keras.layers.Dense(4)], name="own")
    model.compile("sgd", "mse")
    with pytest.raises(RuntimeError, match="The function `train_step` for the model own has been"):
        profile(model, tf.TensorSpec((4, 8)), tf.TensorSpec((4, 4)), gradient_accumulation_count=2)

"""Estimators of pipelines, against updates by hand."""

import doctest
import os

import numpy as np
import pytest
import tensorflow as tf
from in_sessions import configure

from ipu_keras import ipu_pipeline_estimator
from ipu_keras.estimators import export
from ipu_keras.ipu_pipeline_estimator import IPUPipelineEstimator, IPUPipelineEstimatorSpec
from ipu_keras.ipu_run_config import IPURunConfig, RunConfig
from ipu_keras.machine.system import SYSTEM
from ipu_keras.optimizers import CrossReplicaOptimizer
from ipu_keras.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule

V1 = tf.compat.v1
X = np.arange(16, dtype=np.float32)
RATE = 0.0001


@pytest.fixture(autouse=True)
def two_ipus():
    configure(2)
    yield
    SYSTEM.reset()


def config(iterations=8, **given):
    return RunConfig(IPURunConfig(iterations, num_shards=2, **given))


def input_fn():
    dataset = tf.data.Dataset.from_tensor_slices((X, 3 * X))
    return dataset.repeat().batch(2, drop_remainder=True)


def variable(name):
    return V1.get_variable(name, [], initializer=tf.ones_initializer())


def first(features, labels):
    return variable("first") * features, labels


def model_fn(mode, params):
    def second(hidden, labels):
        predicted = variable("second") * hidden
        return predicted if mode == "infer" else tf.reduce_mean((predicted - labels) ** 2)

    def optimizer_function(loss):
        optimizer = V1.train.GradientDescentOptimizer(RATE)
        wrapped = CrossReplicaOptimizer(optimizer) if params.get("wrapped") else optimizer
        return OptimizerFunctionOutput(wrapped, loss)

    def eval_metrics_fn(loss):
        return {"loss": loss, "root": V1.metrics.mean(tf.sqrt(loss))}

    if mode == "infer":
        stages = [lambda features: (variable("first") * features, 0.0 * features), second]
        return IPUPipelineEstimatorSpec(mode, stages, 4)
    return IPUPipelineEstimatorSpec(
        mode,
        [first, second],
        4,
        eval_metrics_fn,
        optimizer_function,
        pipeline_schedule=PipelineSchedule.Grouped,
    )


def updated(a, b, batches):
    """Weights after an update with the sum of gradients of batches, and the mean loss."""
    errors = [(x, a * b * x - 3 * x) for x in batches]
    gradient_a = sum(np.mean(2 * error * b * x) for x, error in errors)
    gradient_b = sum(np.mean(2 * error * a * x) for x, error in errors)
    loss = np.mean([np.mean(error**2) for _, error in errors])
    return a - RATE * gradient_a, b - RATE * gradient_b, loss


def test_examples():
    assert doctest.testmod(ipu_pipeline_estimator).failed == 0


def test_training_evaluation_predictions_and_export(tmp_path):
    estimator = IPUPipelineEstimator(model_fn, tmp_path / "model", config())
    estimator.train(input_fn, steps=16)
    a = b = 1.0
    for _ in range(2):
        for batches in X.reshape(2, 4, 2):
            a, b, _ = updated(a, b, batches)
    values = [estimator.get_variable_value(name) for name in ("first", "second", "global_step")]
    np.testing.assert_allclose(values, [a, b, 16], rtol=1e-5)

    found = estimator.evaluate(input_fn, steps=8)
    by_batch = [np.mean((a * b * x - 3 * x) ** 2) for x in X.reshape(8, 2)]
    np.testing.assert_allclose(found["loss"], np.mean(by_batch), rtol=1e-4)
    np.testing.assert_allclose(found["root"], np.mean(np.sqrt(by_batch)), rtol=1e-4)
    assert found["global_step"] == 16

    predicted = list(estimator.predict(input_fn, num_predictions=16))
    np.testing.assert_allclose(predicted, a * b * X, rtol=1e-5)

    def served():
        fed = V1.placeholder(tf.float32, [None])
        return export.TensorServingInputReceiver(fed, fed)

    path = estimator.export_saved_model(os.fspath(tmp_path / "saved"), served)
    (served_by,) = tf.saved_model.load(path).signatures["serving_default"](X).values()
    np.testing.assert_allclose(served_by, a * b * X, rtol=1e-5)


def test_the_loss_that_is_logged_is_the_mean_of_all_batches(tmp_path):
    estimator = IPUPipelineEstimator(
        model_fn, tmp_path, config().replace(save_summary_steps=8)
    ).train(input_fn, steps=8)
    a = b = 1.0
    losses = []
    for batches in X.reshape(2, 4, 2):
        a, b, loss = updated(a, b, batches)
        losses.append(loss)
    (events,) = (name for name in os.listdir(tmp_path) if name.startswith("events"))
    scalars = [
        each
        for record in tf.data.TFRecordDataset(os.path.join(tmp_path, events))
        for each in V1.Event.FromString(record.numpy()).summary.value
    ]
    assert [each.tag for each in scalars] == ["loss"]
    np.testing.assert_allclose(scalars[0].simple_value, np.mean(losses), rtol=1e-5)
    assert estimator.get_variable_value("global_step") == 8


def test_summaries_in_a_pipeline_are_warned_of(tmp_path):
    def summarized(mode, params):
        def stage(features, labels):
            V1.summary.scalar("scale", features[0])
            return first(features, labels)

        def optimizer_function(loss):
            V1.summary.scalar("halved", loss / 2)
            return spec.optimizer_function(loss)

        spec = model_fn(mode, params)
        stages = [stage, *spec.computational_stages[1:]]
        return spec._replace(computational_stages=stages, optimizer_function=optimizer_function)

    with pytest.warns(UserWarning, match="of a pipeline are not written, as") as warned:
        IPUPipelineEstimator(summarized, tmp_path, config()).train(input_fn, steps=8)
    messages = {str(each.message).rpartition("Received: ")[2] for each in warned}
    assert messages == {"pipeline_stage_0/scale:0", "halved:0"}


def test_replicas_average(tmp_path):
    configure(4)
    estimator = IPUPipelineEstimator(
        model_fn, tmp_path, config(4, num_replicas=2), {"wrapped": True}
    ).train(input_fn, steps=4)
    # Each replica adds the gradients of its four batches; the mean of both is applied.
    a, b, _ = updated(1.0, 1.0, X.reshape(8, 2))
    a, b = (1 + (value - 1) / 2 for value in (a, b))
    np.testing.assert_allclose(estimator.get_variable_value("first"), a, rtol=1e-6)
    np.testing.assert_allclose(estimator.get_variable_value("second"), b, rtol=1e-6)
    with pytest.raises(ValueError, match="This is not a valid replicated training graph"):
        IPUPipelineEstimator(model_fn, None, config(4, num_replicas=2)).train(input_fn, steps=4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", [first]), "`optimizer_function` must be given in the mode 'train'"),
        (("eval", [first]), "`eval_metrics_fn` must be given in the mode 'eval'"),
    ],
)
def test_wrong_specs(arguments, message):
    with pytest.raises(ValueError, match=message):
        IPUPipelineEstimatorSpec(*arguments)
    with pytest.raises(ValueError, match=r"must not be given: .* Received: accumulate_outfeed"):
        IPUPipelineEstimatorSpec("infer", [first], accumulate_outfeed=True)


def test_wrong_model_functions():
    for function in (lambda features, mode: None, lambda labels: None):
        with pytest.raises(ValueError, match="must not have `features` or `labels`"):
            IPUPipelineEstimator(function)
    with pytest.raises(TypeError, match=r"must return an IPUPipelineEstimatorSpec. Received: None"):
        IPUPipelineEstimator(lambda: None, None, config()).train(input_fn, steps=8)
    with pytest.raises(
        ValueError, match=r"multiple of `gradient_accumulation_count`. Received: it"
    ):
        IPUPipelineEstimator(model_fn, None, config(6)).train(input_fn, steps=6)

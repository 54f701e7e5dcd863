"""Estimators of one program: against loops by hand, in NumPy and in plain sessions."""

import doctest
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from in_sessions import compiled, configure, counting

from ipu_keras import ipu_estimator, loops
from ipu_keras.config import IPUConfig
from ipu_keras.estimators import export, specs
from ipu_keras.ipu_estimator import IPUEstimator, IPUEstimatorSpec
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_run_config import IPURunConfig, RunConfig
from ipu_keras.machine.system import SYSTEM
from ipu_keras.optimizers import CrossReplicaOptimizer

V1 = tf.compat.v1
X = np.arange(8, dtype=np.float32)
Y = 3 * X


@pytest.fixture(autouse=True)
def one_ipu():
    configure(1)
    yield
    SYSTEM.reset()


def config(iterations=4, **given):
    ipus = {name: given.pop(name) for name in IPURunConfig._fields if name in given}
    return RunConfig(IPURunConfig(iterations, **ipus), **given)


def input_fn():
    dataset = tf.data.Dataset.from_tensor_slices((X, Y))
    return dataset.repeat().batch(2, drop_remainder=True)


def weight():
    return V1.get_variable("weight", [], initializer=tf.zeros_initializer())


def model_fn(features, labels, mode):
    predicted = weight() * features
    if mode == "infer":
        return IPUEstimatorSpec(mode, predictions=predicted)
    loss = tf.reduce_mean((predicted - labels) ** 2)
    if mode == "eval":
        metrics = (
            lambda p, y: {"error": V1.metrics.mean_absolute_error(y, p)},
            [predicted, labels],
        )
        return IPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
    optimizer = V1.train.GradientDescentOptimizer(0.001)
    return IPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))


def trained_by_hand(num_steps, w=0.0):
    losses = []
    for step in range(num_steps):
        x = X[np.arange(2) + 2 * (step % 4)]
        losses.append(np.mean((w * x - 3 * x) ** 2))
        w -= 0.001 * np.mean(2 * (w * x - 3 * x) * x)
    return w, losses


def summaries(folder):
    """The scalars of a folder's events: step, tag and value."""
    found = []
    for name in sorted(os.listdir(folder)):
        if name.startswith("events"):
            for record in tf.data.TFRecordDataset(os.path.join(folder, name)):
                event = tf.compat.v1.Event.FromString(record.numpy())
                found += [(event.step, each.tag, each.simple_value) for each in event.summary.value]
    return found


def test_examples():
    assert doctest.testmod(ipu_estimator).failed == doctest.testmod(specs).failed == 0


def test_training_evaluation_and_predictions(tmp_path):
    estimator = IPUEstimator(model_fn, tmp_path, config(save_summary_steps=4))
    assert estimator.train(input_fn, steps=8) is estimator
    w, losses = trained_by_hand(8)
    assert estimator.get_variable_names() == ["global_step", "weight"]
    np.testing.assert_allclose(estimator.get_variable_value("weight"), w, rtol=1e-6)
    assert estimator.latest_checkpoint() == str(tmp_path / "model.ckpt-8")
    (step, tag, value), *_ = summaries(tmp_path)
    assert (step, tag) == (4, "loss")
    np.testing.assert_allclose(value, np.mean(losses[:4]), rtol=1e-6)

    found = estimator.evaluate(input_fn, steps=4)
    assert set(found) == {"error", "loss", "global_step"}
    assert found["global_step"] == 8
    np.testing.assert_allclose(found["error"], np.mean(np.abs(w * X - Y)), rtol=1e-6)
    np.testing.assert_allclose(found["loss"], np.mean((w * X - Y) ** 2), rtol=1e-6)
    assert estimator.eval_dir() == str(tmp_path / "eval")
    assert {tag for _, tag, _ in summaries(estimator.eval_dir())} == {"error", "loss"}

    np.testing.assert_allclose(
        list(estimator.predict(input_fn, num_predictions=5)), w * X[:5], rtol=1e-6
    )
    batches = estimator.predict(input_fn, yield_single_examples=False)
    np.testing.assert_allclose([next(batches) for _ in range(4)], w * X.reshape(4, 2), rtol=1e-6)
    batches.close()


def test_it_equals_a_plain_session_and_goes_on_from_a_checkpoint(tmp_path):
    """Adam, whose slots and powers have to be in the checkpoint."""

    def train_op(features, labels):
        loss = tf.reduce_mean((weight() * features - labels) ** 2)
        return loss, V1.train.AdamOptimizer(0.1).minimize(loss)

    with tf.Graph().as_default():
        queue = IPUInfeedQueue(input_fn())
        run = compiled(lambda: loops.repeat(4, lambda x, y: train_op(x, y)[1], [], queue))
        with V1.variable_scope("", reuse=True), V1.Session() as session:
            session.run([V1.global_variables_initializer(), queue.initializer])
            for _ in range(4):
                session.run(run)
            expected = session.run(weight())

    def adam(features, labels, mode):
        loss, operation = train_op(features, labels)
        return IPUEstimatorSpec(mode, loss=loss, train_op=operation)

    # Another one, of the same folder, stands for another process.
    for max_steps in (8, 16, 16):
        IPUEstimator(adam, tmp_path, config()).train(input_fn, max_steps=max_steps)
    estimator = IPUEstimator(adam, tmp_path, config())
    assert estimator.get_variable_value("weight") == expected
    assert estimator.get_variable_value("global_step") == 16
    by_hand, mean, square = 0.0, 0.0, 0.0
    for step in range(1, 17):
        x = X[np.arange(2) + 2 * ((step - 1) % 4)]
        # The second and further trainings begin with the first element again, as these do here.
        gradient = np.mean(2 * (by_hand * x - 3 * x) * x)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        rate = 0.1 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        by_hand -= rate * mean / (np.sqrt(square) + 1e-8)
    np.testing.assert_allclose(expected, by_hand, rtol=1e-5)


def test_layers_of_keras_find_their_variables(tmp_path):
    def dense(features, labels, mode):
        hidden = keras.layers.Dense(4, "tanh")(features[:, tf.newaxis])
        predicted = keras.layers.Dense(1)(hidden)[:, 0]
        if mode == "infer":
            return specs.EstimatorSpec(mode, predictions={"y": predicted, "x": features})
        loss = tf.reduce_mean((predicted - labels) ** 2)
        train_op = V1.train.AdamOptimizer(0.01).minimize(
            loss, global_step=V1.train.get_global_step()
        )
        return specs.EstimatorSpec(mode, loss=loss, train_op=train_op)

    estimator = IPUEstimator(dense, tmp_path, config(tf_random_seed=1))
    estimator.train(input_fn, steps=4)
    # The model counts the global step too, which is not counted twice.
    assert estimator.get_variable_value("global_step") == 4
    first = estimator.evaluate(input_fn, steps=4)
    assert first["loss"] > estimator.train(input_fn, steps=40).evaluate(input_fn, steps=4)["loss"]
    names = [name for name in estimator.get_variable_names() if name.endswith("dense_1/kernel")]
    assert len(names) == 1
    found = list(estimator.predict(input_fn, ["x"], num_predictions=2))
    assert found == [{"x": 0.0}, {"x": 1.0}]


def test_replicas_average_and_keep_the_order_of_the_dataset(tmp_path):
    def replicated(features, labels, mode, params):
        assert params["batch_size"] == 2
        if mode == "infer":
            return IPUEstimatorSpec(mode, predictions=features)
        loss = tf.reduce_mean((weight() * features - labels) ** 2)
        optimizer = CrossReplicaOptimizer(V1.train.GradientDescentOptimizer(0.001))
        metrics = {"mean": V1.metrics.mean(labels)}
        return IPUEstimatorSpec(
            mode, loss=loss, train_op=optimizer.minimize(loss), eval_metric_ops=metrics
        )

    options = IPUConfig()
    options.auto_select_ipus = 2
    SYSTEM.reset()
    estimator = IPUEstimator(
        replicated,
        tmp_path,
        config(2, num_replicas=2, ipu_options=options),
        train_batch_size=4,
        eval_batch_size=4,
        predict_batch_size=4,
    )
    estimator.train(lambda params: input_fn(), steps=2)
    w = 0.0
    for x in (X[:4], X[4:]):
        w -= 0.001 * np.mean(2 * (w * x - 3 * x) * x)
    np.testing.assert_allclose(estimator.get_variable_value("weight"), w, rtol=1e-6)
    with pytest.warns(UserWarning, match="their mean is returned"):
        found = estimator.evaluate(input_fn, steps=4)
    np.testing.assert_allclose(found["mean"], np.mean(Y))
    assert list(estimator.predict(input_fn, num_predictions=8)) == list(X)

    with pytest.raises(ValueError, match="`train_batch_size` must be divisible by the number of"):
        IPUEstimator(replicated, config=estimator.config, train_batch_size=3)
    with pytest.raises(ValueError, match=r"not a valid replicated training graph .* Did you rem"):
        IPUEstimator(model_fn, config=estimator.config.replace(model_dir=None)).train(
            input_fn, steps=2
        )


def test_a_function_of_the_host_updates_weights(tmp_path):
    def on_host(features, labels, mode):
        w = weight()
        loss = tf.reduce_mean((w * features - labels) ** 2)
        optimizer = V1.train.MomentumOptimizer(0.001, 0.9)
        pairs = optimizer.compute_gradients(loss, [w])

        def update(gradient):
            return optimizer.apply_gradients([(gradient, w)])

        call = (update, [gradient for gradient, _ in pairs])
        return IPUEstimatorSpec(mode, loss=loss, train_op=tf.identity(loss), host_call=call)

    estimator = IPUEstimator(on_host, tmp_path, config(1)).train(input_fn, steps=3)
    w = momentum = 0.0
    for x in X[:6].reshape(3, 2):
        momentum = 0.9 * momentum + np.mean(2 * (w * x - 3 * x) * x)
        w -= 0.001 * momentum
    np.testing.assert_allclose(estimator.get_variable_value("weight"), w, rtol=1e-6)
    with pytest.raises(ValueError, match=r"must be 1. Received: iterations_per_loop=2"):
        IPUEstimator(on_host, None, config(2)).train(input_fn, steps=2)


def test_a_warm_start_is_of_the_first_training_only(tmp_path):
    first = IPUEstimator(model_fn, tmp_path / "first", config()).train(input_fn, steps=4)
    begun = first.get_variable_value("weight")
    later = IPUEstimator(
        model_fn, tmp_path / "later", config(), warm_start_from=str(tmp_path / "first")
    )
    later.train(input_fn, steps=4)
    assert later.get_variable_value("global_step") == 4
    w, _ = trained_by_hand(4, begun)
    np.testing.assert_allclose(later.get_variable_value("weight"), w, rtol=1e-6)
    later.train(input_fn, steps=4)
    w, _ = trained_by_hand(4, w)
    np.testing.assert_allclose(later.get_variable_value("weight"), w, rtol=1e-6)


def test_exported_models(tmp_path):
    estimator = IPUEstimator(model_fn, tmp_path / "model", config()).train(input_fn, steps=4)
    w = estimator.get_variable_value("weight")

    def served():
        fed = V1.placeholder(tf.float32, [None])
        return export.TensorServingInputReceiver(fed, fed)

    (tmp_path / "words").write_text("a b c")
    path = estimator.export_saved_model(
        str(tmp_path / "saved"), served, {"words.txt": str(tmp_path / "words")}
    )
    assert [entry.name for entry in (tmp_path / "saved").iterdir()] == [os.path.basename(path)]
    with open(os.path.join(path, "assets.extra", "words.txt")) as copied:
        assert copied.read() == "a b c"
    loaded = tf.saved_model.load(path).signatures["serving_default"]
    (found,) = loaded(tf.constant([1.0, 2.0])).values()
    np.testing.assert_allclose(found, [w, 2 * w])

    def supervised():
        x, y = (V1.placeholder(tf.float32, [2], name) for name in "xy")
        return export.SupervisedInputReceiver(x, y, {"x": x, "y": y})

    path = estimator.experimental_export_all_saved_models(
        str(tmp_path / "all"), {"train": supervised, "eval": supervised, "infer": served}
    )
    with tf.Graph().as_default(), V1.Session() as session:
        loaded = V1.saved_model.load(session, ["eval"], path)
        signature = loaded.signature_def["eval"]
        fed = {signature.inputs[name].name: [1.0, 2.0] for name in "xy"}
        loss = session.run(signature.outputs["loss"].name, fed)
        np.testing.assert_allclose(loss, 2.5 * (w - 1) ** 2, rtol=1e-6)
    with pytest.raises(ValueError, match=r"input receiver must be given .* \{'infer': None\}"):
        estimator.export_saved_model(str(tmp_path / "none"), None)
    with pytest.raises(ValueError, match="Couldn't find trained model at"):
        IPUEstimator(model_fn).export_saved_model(str(tmp_path / "none"), served)


def test_hooks_listeners_and_summaries_of_the_model(tmp_path):
    seen = []

    class Hook(V1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            seen.append("run")

    class Listener(V1.train.CheckpointSaverListener):
        def after_save(self, session, global_step_value):
            seen.append(int(global_step_value))

    def summarized(features, labels, mode):
        V1.summary.scalar("first", features[0])
        spec = model_fn(features, labels, mode)
        return spec._replace(training_hooks=[Hook()])

    estimator = IPUEstimator(
        summarized, tmp_path, config(save_checkpoints_steps=4, save_summary_steps=4)
    )
    estimator.train(input_fn, [Hook()], steps=8, saving_listeners=[Listener()])
    assert seen == [0, "run", "run", 4, "run", "run", 8]
    firsts = [(step, value) for step, tag, value in summaries(tmp_path) if tag == "first"]
    # Of the last batch of each loop.
    assert firsts == [(4, 6.0), (8, 6.0)]


def test_all_elements_of_a_dataset_are_evaluated_once(tmp_path):
    def count(features, mode):
        metrics = {"sum": V1.metrics.mean(features), "by place": V1.metrics.mean_tensor(features)}
        return specs.EstimatorSpec(mode, loss=tf.reduce_max(features), eval_metric_ops=metrics)

    def numbers():
        dataset = tf.data.Dataset.from_tensor_slices(X).batch(2, drop_remainder=True)
        return tf.data.Dataset.zip((dataset,))

    found = IPUEstimator(count, tmp_path, config(2)).evaluate(numbers)
    assert found.pop("by place").tolist() == [3.0, 4.0]
    assert found == {"sum": 3.5, "loss": 4.0, "global_step": 0}
    with pytest.raises(ValueError, match=r"steps=6, and a dataset that ended within .* 5 to 6 "):
        IPUEstimator(count, tmp_path, config(2)).evaluate(numbers, steps=6)
    with pytest.raises(ValueError, match=r"steps \(4\) must be a multiple of iterations_per_loop"):
        IPUEstimator(count, tmp_path, config(3)).evaluate(numbers)
    with pytest.raises(ValueError, match="`steps` must be given, as the dataset"):
        IPUEstimator(count, tmp_path, config(2)).evaluate(lambda: numbers().repeat())


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda e: e.train(input_fn, steps=6),
            ValueError,
            r"^steps \(6\) must be a multiple of iterations_per_loop \(4\)",
        ),
        (
            lambda e: e.train(input_fn, max_steps=6),
            ValueError,
            r"steps \(6\) must be a multiple of iterations_per_loop \(4\)",
        ),
        (
            lambda e: e.train(input_fn, steps=4, max_steps=4),
            ValueError,
            "Only one of `steps` and `max_steps`",
        ),
        (lambda e: e.train(lambda: (X, Y), steps=4), ValueError, "^input_fn must return Dataset"),
        (
            lambda e: e.train(lambda: tf.data.Dataset.zip((counting(),) * 3), steps=4),
            ValueError,
            "must be tuples .* Received: elements of 3 parts",
        ),
        (lambda e: e.get_variable_names(), ValueError, "Couldn't find trained model at"),
        (lambda e: next(e.predict(input_fn, ["y"])), ValueError, "are for predictions that are a"),
    ],
)
def test_wrong_calls(call, kind, message):
    with pytest.raises(kind, match=message):
        call(IPUEstimator(model_fn, None, config()))


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        (None, TypeError, "`model_fn` must return an IPUEstimatorSpec or a tf.estimator"),
        (IPUEstimatorSpec("infer"), ValueError, "Received: mode='infer' for 'eval'"),
        (IPUEstimatorSpec("eval"), ValueError, "must have `loss` in the mode 'eval'"),
        (IPUEstimatorSpec("eval", loss=1.0), ValueError, "Exactly one of `eval_metrics` and"),
        (
            IPUEstimatorSpec("eval", loss=1.0, eval_metrics=3),
            TypeError,
            "`eval_metrics` must be a pair of a function",
        ),
        (
            IPUEstimatorSpec("eval", loss=1.0, eval_metric_ops={"a": 1}),
            TypeError,
            "must be a dict from names to pairs .* Received: 'a': 1",
        ),
    ],
)
def test_wrong_specs(spec, kind, message):
    with pytest.raises(kind, match=message):
        IPUEstimator(lambda features, labels: spec, None, config()).evaluate(input_fn, steps=4)


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"model_fn": 3}, TypeError, "`model_fn` must be a function"),
        ({"model_fn": lambda labels: None}, ValueError, "must have an argument `features`"),
        ({"model_fn": lambda features, y: None}, ValueError, r"Received: also \['y'\]"),
        ({"config": IPURunConfig()}, TypeError, "`config` must be an ipu_run_config.RunConfig"),
        (
            {"config": RunConfig(train_distribute=3)},
            TypeError,
            "`train_distribute` must be an IPUMultiWorkerStrategy",
        ),
        ({"params": 3}, TypeError, "`params` must be a dict"),
        ({"warm_start_from": 3}, TypeError, "`warm_start_from` must be the path"),
        (
            {"model_dir": "a", "config": RunConfig(model_dir="b")},
            ValueError,
            "must be the same if both are given. Received: model_dir='a'",
        ),
        (
            {"params": {"batch_size": 1}, "eval_batch_size": 2},
            ValueError,
            "must not have 'batch_size' if `eval_batch_size` is given",
        ),
    ],
)
def test_wrong_estimators(given, kind, message):
    with pytest.raises(kind, match=message):
        IPUEstimator(**{"model_fn": model_fn, **given})


def test_the_number_of_ipus_must_be_that_of_the_configuration():
    with pytest.raises(ValueError, match=r"configured with 2 devices .* has 1 IPUs"):
        IPUEstimator(model_fn, None, config(num_replicas=2)).train(input_fn, steps=4)
    SYSTEM.reset()
    IPUEstimator(model_fn, None, config(num_shards=2))._configure()
    assert SYSTEM.config.auto_select_ipus == 2

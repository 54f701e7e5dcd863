"""One of several workers that train a model together: `TF_CONFIG` says which, and argument 1 how.

What it finds is printed as JSON on the last line.
"""

import json
import os
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.ipu_multi_worker_strategy import IPUMultiWorkerStrategyV1

X = np.arange(32, dtype=np.float32).reshape(8, 4) / 32
Y = X.sum(axis=1, keepdims=True)
NUM_STEPS = 3


def made_model():
    model = keras.Sequential(
        [keras.Input([4]), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)]
    )
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def step_of(model, optimizer):
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x) - y) ** 2) / len(X)
        weights = model.trainable_variables
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    return step


def error_of(function, *args):
    began = time.monotonic()
    try:
        function(*args)
    except Exception as error:
        return str(error), time.monotonic() - began
    return "", time.monotonic() - began


def session_variable(strategy):
    with tf.Graph().as_default(), strategy.scope():
        tf.compat.v1.get_variable("a", [])


def metric(strategy):
    with strategy.scope():
        tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)


def main(how):
    IPUConfig().configure_ipu_system()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = IPUMultiWorkerStrategyV1(resolver)
    index = resolver.task_id
    keras.utils.set_random_seed(1 + index)  # the first worker's values are everyone's
    with strategy.scope():
        model, optimizer = made_model()
    step = step_of(model, optimizer)
    own = [np.split(array, 2)[index] for array in (X, Y)]
    losses = []
    for compiled in (False, True):
        function = tf.function(step, jit_compile=compiled)
        for _ in range(NUM_STEPS):
            loss = strategy.run(function, own)
            losses.append(float(strategy.reduce("SUM", loss)))
    found = {"losses": losses, "weights": [weight.numpy().tolist() for weight in model.weights]}
    found["mean"] = strategy.reduce("MEAN", tf.constant([index, 4.0])).numpy().tolist()
    # Of 1 and 2, and of 3, 4 and 5, if each is in a worker.
    part = tf.constant([[1.0, 2.0], [3.0, 4.0, 5.0]][index])
    found["mean_of_axis"] = float(strategy.reduce("MEAN", part, axis=0))
    context = tf.distribute.get_replica_context
    replica = strategy.run(tf.function(lambda: context().replica_id_in_sync_group))
    found["replica"] = int(replica)
    found["input"] = []

    def dataset_of(context):
        found["input"] += [context.num_input_pipelines, context.input_pipeline_id]
        return tf.data.Dataset.range(4)

    strategy.distribute_datasets_from_function(dataset_of)
    if how == "values":
        model.compile("sgd", "mse")
        found["fit"] = error_of(model.fit, X, Y)[0]
        found["session"] = error_of(session_variable, strategy)[0]
        found["metric"] = error_of(metric, strategy)[0]
    if how == "shapes":
        found["error"] = error_of(strategy.reduce, "SUM", tf.ones([2 + index]))
    if how == "killed" and index == 1:
        os.kill(os.getpid(), 9)
    if how == "killed":
        found["error"] = error_of(strategy.run, function, own)
    found["end"] = time.time()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

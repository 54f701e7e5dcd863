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
from tensorflow.python import ipu

from ipu_keras.config import IPUConfig
from ipu_keras.ipu_multi_worker_strategy import IPUMultiWorkerStrategyV1

v1 = tf.compat.v1
ON_READ = tf.VariableSynchronization.ON_READ
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


def assigned_together(strategy, index):
    """What all have of variables to which the workers add 1 and 2, and one assigns alone."""
    kinds = [tf.VariableAggregation.SUM, tf.VariableAggregation.MEAN, tf.VariableAggregation.NONE]
    with strategy.scope():
        variables = [tf.Variable(10.0, trainable=False, aggregation=kind) for kind in kinds]

    @tf.function
    def step(x):
        return [variable.assign_add(x) for variable in variables]

    strategy.run(step, [tf.constant(index + 1.0)])
    return [float(variable.numpy()) for variable in variables]


def variables_read_together(strategy, index):
    """What each worker has of variables that it adds 1 or 2 to, and what all read of them."""
    kinds = [tf.VariableAggregation.SUM, tf.VariableAggregation.MEAN]
    kinds += [tf.VariableAggregation.ONLY_FIRST_REPLICA, tf.VariableAggregation.NONE]
    with strategy.scope():
        metric = keras.metrics.Mean()
        variables = [
            tf.Variable(1.0, trainable=False, synchronization=ON_READ, aggregation=kind)
            for kind in kinds
        ]

    @tf.function
    def step(x):
        metric.update_state(x)
        return [variable.assign_add(x) for variable in variables]

    own = strategy.run(step, [tf.constant(index + 1.0)])
    *reduced, alone = variables
    read = [float(variable.numpy()) for variable in reduced]
    mean = float(metric.result())
    reduced[0].assign(5.0)  # the sum of all workers
    return {
        "own": [float(value) for value in own],
        "read": [*read, error_of(alone.numpy)[0]],
        "metric": mean,
        "assigned": [float(value) for value in (reduced[0].values[0], reduced[0].numpy())],
    }


def in_functions(resolver, strategy):
    """Training in functions, half of it compiled by XLA, and what fails there."""
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
    model.compile("sgd", "mse")
    found["fit"] = error_of(model.fit, X, Y)[0]
    found["assigned"] = assigned_together(strategy, index)
    found["variables"] = variables_read_together(strategy, index)
    found["shapes"] = error_of(strategy.reduce, "SUM", tf.ones([2 + index]))
    if index == 0:  # the other one has fewer batches, and ends
        found["fewer"] = error_of(strategy.run, function, own)
    return found


def seen_by_all():
    """A count of each worker, which is their sum where all read it together."""
    return v1.get_variable(
        "seen",
        [],
        initializer=v1.zeros_initializer(),
        trainable=False,
        synchronization=ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )


def in_sessions(resolver, strategy):
    """Training in a session, by two replicas, configured when the graph is there."""
    index, found = resolver.task_id, {}
    with tf.Graph().as_default():
        config = strategy.update_config_proto(v1.ConfigProto())
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name="worker", task_index=index, config=config
        )

        def step(x, y):
            kernel = v1.get_variable(
                "kernel", [4, 1], initializer=v1.constant_initializer(index + 0.5)
            )
            seen = seen_by_all()
            loss = tf.reduce_sum((x @ kernel - y) ** 2)
            optimizer = ipu.optimizers.CrossReplicaOptimizer(v1.train.MomentumOptimizer(0.1, 0.5))
            return optimizer.minimize(loss), seen.assign_add(2.0 * index + 1.0).op

        # An element for each replica in turn; the workers have every other pair.
        rows = np.arange(8).reshape(2, 2, 2)[:, index].ravel()
        feed = ipu.ipu_infeed_queue.IPUInfeedQueue(
            tf.data.Dataset.from_tensor_slices((X[rows, None], Y[rows, None])).repeat()
        )

        def run():
            with ipu.scopes.ipu_scope("/device:IPU:0"):
                return ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, step, [], feed))

        with strategy.scope():
            train = strategy.experimental_run_v2(run)
            given = v1.placeholder(tf.float32, [None])
            total = strategy.reduce("SUM", given)
            variables = v1.global_variables()
            read = {variable.name: tf.identity(variable) for variable in variables}
            saver = v1.train.Saver()
        two = IPUConfig()
        two.auto_select_ipus = 2
        two.configure_ipu_system()
        with v1.Session() as plain:
            found["plain"] = error_of(plain.run, total, {given: [1.0]})[0]
        with v1.Session(server.target, config=config) as session:
            session.run([v1.global_variables_initializer(), feed.initializer])
            for _ in range(NUM_STEPS):
                session.run(train)
            # Neither waits for the other one in the graph.
            _, sums = session.run([train, total], {given: [1.0, index]})
            values = session.run(read)
            found["weights"] = {name: value.tolist() for name, value in values.items()}
            found["sums"] = sums.tolist()
            path = saver.save(session, os.path.join(sys.argv[2], f"{index}"))
            session.run(v1.global_variables_initializer())
            saver.restore(session, path)
            found["restored"] = float(session.run(read["seen:0"]))
            found["shapes"] = error_of(session.run, total, {given: np.ones(2 + index)})
            if index == 1:
                os.kill(os.getpid(), 9)
            found["killed"] = error_of(session.run, train)
    return found


def in_estimators(resolver, strategy):
    """Training of estimators, which goes on from a checkpoint, and by updates on the host."""
    index = resolver.task_id

    def on_the_host(features, labels, mode):
        kernel = v1.get_variable("kernel", [4, 1], initializer=v1.constant_initializer(index + 0.5))
        loss = tf.reduce_sum((features @ kernel - labels) ** 2)
        optimizer = v1.train.MomentumOptimizer(0.1, 0.5)
        (gradient, _), *_ = optimizer.compute_gradients(loss, [kernel])
        call = (lambda gradient: optimizer.apply_gradients([(gradient, kernel)]), [gradient])
        spec = ipu.ipu_estimator.IPUEstimatorSpec
        return spec(mode, loss=loss, train_op=tf.identity(loss), host_call=call)

    def on_the_ipu(features, labels, mode):
        seen = seen_by_all()
        spec = on_the_host(features, labels, mode)
        call, (gradient,) = spec.host_call
        operations = tf.group(call(gradient), seen.assign_add(2.0 * index + 1.0))
        return spec._replace(train_op=operations, host_call=None)

    def rows(input_context):
        data = tf.data.Dataset.from_tensor_slices((X[:, None], Y[:, None]))
        return data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)

    found = {}
    for model_fn, steps, iterations in ((on_the_ipu, 2, 2), (on_the_host, 4, 1)):
        name = model_fn.__name__
        config = ipu.ipu_run_config.RunConfig(
            ipu.ipu_run_config.IPURunConfig(iterations_per_loop=iterations),
            train_distribute=strategy,
            save_checkpoints_steps=2,
        )
        estimator = ipu.ipu_estimator.IPUEstimator(
            model_fn, os.path.join(sys.argv[2], name), config
        )
        for begin in range(0, 4, steps):
            estimator.train(
                lambda input_context, begin=begin: rows(input_context).skip(begin), steps=steps
            )
        if index == 0:
            names = estimator.get_variable_names()
            found[name] = {each: estimator.get_variable_value(each).tolist() for each in names}
    return found


def main(how, *_):
    IPUConfig().configure_ipu_system()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = IPUMultiWorkerStrategyV1(resolver)
    kinds = {"functions": in_functions, "sessions": in_sessions, "estimators": in_estimators}
    found = kinds[how](resolver, strategy)
    found["end"] = time.time()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

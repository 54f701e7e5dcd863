"""What each of several processes runs, for `test_several.py`: writes JSON into a folder."""

import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu import horovod as hvd
from tensorflow.python.ipu.horovod.ipu_horovod_strategy import IPUHorovodStrategy
from tensorflow.python.ipu.horovod.ipu_multi_replica_strategy import IPUMultiReplicaStrategy


def operations():
    own = tf.constant([hvd.rank() + 1.0, 0.5])

    @tf.function
    def all_three(x):
        return hvd.allreduce(x), hvd.allgather(x), hvd.broadcast(x, hvd.size() - 1)

    def of(found):
        return [np.asarray(each).tolist() for each in found]

    eager = [hvd.allreduce(own), hvd.allgather(own), hvd.broadcast(own, hvd.size() - 1)]
    halves = hvd.allreduce(tf.constant([1.5 + hvd.rank()], tf.float16), op=hvd.Sum)
    ragged = hvd.allgather(tf.fill([hvd.rank() + 1], hvd.rank()))
    return {
        "eager": of(eager),
        "graph": of(all_three(own)),
        "ragged": of([ragged, halves]),
        "independent": [independent(in_xla, 50) for in_xla in (False, True)],
    }


def independent(in_xla, count):
    """How far executions of two sums that do not need each other are from the right values.

    What is added up is returned too: a total must not take its memory then.
    """

    @tf.function(jit_compile=in_xla)
    def two(few, many):
        wide = 2 * many
        return hvd.allreduce(few, op=hvd.Sum), hvd.allreduce(wide, op=hvd.Sum), wide

    most, errors, size = np.arange(20_000, dtype="f4"), set(), hvd.size()
    for turn in range(count):
        own = hvd.rank() + turn
        few, many, wide = two(tf.constant([own, -own]), tf.constant(most + own))
        total = size * turn + size * (size - 1) // 2
        errors |= {*(few.numpy() - [total, -total]), *(many.numpy() - 2 * (size * most + total))}
        errors |= {*(wide.numpy() - 2 * (most + own))}
    return [float(error) for error in errors]


def own_loop(on_host):
    """Sums of gradients, of a function for `run`, with momentum that is on the host or not."""
    ipu.config.IPUConfig().configure_ipu_system()
    strategy = IPUHorovodStrategy(variables_on_host=on_host)
    with strategy.scope():
        variable = keras.Variable([1.0 + hvd.rank(), 2.0])
        optimizer = keras.optimizers.SGD(0.1, momentum=0.5)
        optimizer.build([variable])

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * x)
        optimizer.apply([tape.gradient(loss, variable.value)], [variable])
        return loss

    for _ in range(2):
        strategy.run(step, [tf.constant([1.0, 10.0 * hvd.rank()])])
    return {"variable": variable.numpy().tolist(), "device": variable.value.device[-5:]}


def disagreements():
    """What is said to each process when rank 1 is late, and then does something else."""
    ipu.config.IPUConfig().configure_ipu_system()
    strategy, odd = IPUMultiReplicaStrategy(), hvd.rank() == 1

    def fit(width=4, steps=2, rows=4):
        with strategy.scope():
            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(width)])
            model.compile("sgd", "mse", steps_per_execution=steps)
        x, y = np.ones((rows * steps, 2), "f4"), np.zeros((rows * steps, width), "f4")
        model.fit(x, y, batch_size=rows, shuffle=False, verbose=0)

    def seeds():
        ipu.utils.reset_ipu_seed(hvd.rank())
        fit()

    others = {
        "late": fit,
        "rows": lambda: fit(rows=8 if odd else 4),
        "steps": lambda: fit(steps=4 if odd else 2),
        "seed": seeds,
        "alone": lambda: hvd.allreduce(tf.ones([3])) if odd else fit(),
    }
    if odd:
        time.sleep(2.5)
    return {name: said(run) for name, run in others.items()}


def said(run):
    """The message of an error, from where it says what processes do; empty if there is none."""
    try:
        run()
    except (RuntimeError, tf.errors.AbortedError) as error:
        return "processes do" + str(error).rpartition("processes do")[2].split("\n")[0]
    return ""


def rounded():
    """Weights of halves that are rounded at random, of gradients that differ in each process."""
    config = ipu.config.IPUConfig()
    config.floating_point_behaviour.esr = ipu.config.StochasticRoundingBehaviour.ON
    config.configure_ipu_system()
    with IPUMultiReplicaStrategy().scope():
        layer = keras.layers.Dense(64, dtype="float16")
        model = keras.Sequential([keras.Input((8,), dtype="float16"), layer])
        model.compile(keras.optimizers.SGD(0.01), "mse", steps_per_execution=4)
    x = np.random.default_rng(hvd.rank()).normal(size=(64, 8)).astype("float16")
    model.fit(x, np.ones((64, 64), "float16"), batch_size=8, shuffle=False, verbose=0)
    return {"weights": [float(one) for one in model.get_weights()[0].ravel()]}


def assigned():
    """Variables to which processes add 1 and 2, in `run`, and what is said with two replicas."""
    ipu.config.IPUConfig().configure_ipu_system()
    kinds = [tf.VariableAggregation.SUM, tf.VariableAggregation.MEAN, tf.VariableAggregation.NONE]
    strategy = IPUMultiReplicaStrategy()
    with strategy.scope():
        variables = [tf.Variable(10.0, trainable=False, aggregation=kind) for kind in kinds]

    @tf.function
    def step(x):
        return [variable.assign_add(x) for variable in variables]

    strategy.run(step, [tf.constant(hvd.rank() + 1.0)])
    found = [float(variable.numpy()) for variable in variables]
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    with warnings.catch_warnings(action="ignore"):
        config.configure_ipu_system()
    try:
        strategy.run(tf.function(lambda: variables[0].assign(1.0)))
    except NotImplementedError as error:
        return [found, str(error)]
    return [found, ""]


def scaled():
    """A weight that is updated in the second of two steps, as one gradient is infinite before."""
    ipu.config.IPUConfig().configure_ipu_system()
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=8.0)
    with IPUMultiReplicaStrategy().scope():
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((1,)), layer])
        model.compile(optimizer, lambda y, prediction: prediction, steps_per_execution=2)
    x = np.array([[1e38 if hvd.rank() else 1.0], [1.0]], "f4")
    model.fit(x, x, batch_size=1, shuffle=False, verbose=0)
    return [float(model.get_weights()[0].item()), float(optimizer.dynamic_scale)]


def told():
    """What replicas of both processes average, and the part of a dataset that each makes."""
    ipu.config.IPUConfig().configure_ipu_system()
    strategy = IPUMultiReplicaStrategy()

    @tf.function
    def step(x):
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, x)

    def part(context):
        numbers = tf.data.Dataset.range(4)
        return numbers.shard(context.num_input_pipelines, context.input_pipeline_id)

    mean = strategy.run(step, [tf.constant(hvd.rank() + 1.0)])
    numbers = strategy.distribute_datasets_from_function(part)
    return [float(mean), [int(number) for number in numbers]]


def in_session():
    """Sums of a session: of a weight, of the weight when it has changed, and one made too late."""
    ipu.config.IPUConfig().configure_ipu_system()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        begin = tf.compat.v1.placeholder(tf.float32, [])
        with IPUMultiReplicaStrategy().scope():
            weight = tf.compat.v1.get_variable("weight", initializer=begin, use_resource=True)
        as_it_is = hvd.allreduce(weight.read_value(), op=hvd.Sum)
        changed = weight.assign_add(1.0)
        sums = [hvd.allreduce(of, op=hvd.Sum) for of in (changed, -changed)]
        with warnings.catch_warnings(record=True) as warned:
            hvd.allreduce(weight.read_value(), op=hvd.Sum)
        session.run(weight.initializer, {begin: hvd.rank() + 5.0})
        found = [session.run(as_it_is), *session.run(sums), session.run(as_it_is)]
        return [float(total) for total in found], [str(one.message) for one in warned]


def killed():
    """Rank 1 is killed when it has trained a little."""
    total = hvd.allreduce(tf.ones([2]))
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"never": hvd.allreduce(total).numpy().tolist()}


def training(num_ipus, accumulated):
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = num_ipus
    config.experimental.multi_replica_distribution.process_count = hvd.size()
    config.experimental.multi_replica_distribution.process_index = hvd.rank()
    config.configure_ipu_system()
    strategy = IPUMultiReplicaStrategy()
    # Each process would begin with weights of its own.
    keras.utils.set_random_seed(hvd.rank())
    rng = np.random.default_rng(0)
    x = rng.normal(size=(256, 8)).astype("float32")
    y = np.tanh(x.sum(axis=1, keepdims=True))
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((8,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)]
        )
    if accumulated > 1:
        model.set_gradient_accumulation_options(accumulated * num_ipus)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.5, global_clipnorm=1.0)
    model.compile(optimizer, "mse", steps_per_execution=accumulated)
    size = 32 // (hvd.size() * num_ipus)
    order = np.arange(256).reshape(-1, hvd.size(), num_ipus * size)[:, hvd.rank()].ravel()
    fit = model.fit(x[order], y[order], batch_size=size, epochs=12, shuffle=False, verbose=0)
    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    total = strategy.reduce("SUM", tf.constant(2.0))
    return {
        "weights": weights.tolist(),
        "loss": fit.history["loss"][-1],
        "sum": float(total),
        "in_sync": strategy.num_replicas_in_sync,
    }


hvd.init()
folder, what = sys.argv[1:]
if what == "fails" and hvd.rank() == 1:
    raise ValueError("bad sample 17")
if what == "stuck" and hvd.rank() == 1:
    time.sleep(10**6)
if what == "ends" and hvd.rank() == 1:
    sys.exit()
while what == "prints":
    print(hvd.rank(), flush=True)
    time.sleep(0.02)


def trained():
    """The training of one replica that accumulates, and of two that do not."""
    return [training(1, 4), training(2, 1)]


def together():
    """All that goes well in two processes."""
    return {
        "trained": trained(),
        "loops": [own_loop(on_host) for on_host in (False, True)],
        "assigned": assigned(),
        "rounded": rounded(),
        "scaled": scaled(),
        "told": told(),
        "in_session": in_session(),
        "disagreements": disagreements(),
    }


runs = {"operations": operations, "trained": trained, "together": together}
found = runs.get(what, killed)()
Path(folder, f"{hvd.rank()}.json").write_text(json.dumps(found))

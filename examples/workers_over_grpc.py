"""Two workers train one model together, each on half of every batch, without MPI.

Each is a process that `TF_CONFIG` tells who it is among them. Without that variable this script
starts both, on ports of this machine that are free:

    python examples/workers_over_grpc.py

In two terminals of your own, give each its variable (here of the first worker; the second has
`"index": 1`):

    export TF_CONFIG='{"cluster": {"worker": ["localhost:2301", "localhost:2302"]},
                       "task": {"type": "worker", "index": 0}}'
    python examples/workers_over_grpc.py
"""

import json
import os
import socket
import subprocess
import sys

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(8, "passes over the training images"))

BATCH_SIZE = 32


def train(num_epochs: int) -> None:
    """Trains as the worker that `TF_CONFIG` says, and prints what it reached as JSON."""
    # Only workers need these, which take seconds to import.
    import digits_data
    import keras
    import numpy as np
    import tensorflow as tf
    from tensorflow.python import ipu
    from tensorflow.python.ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategy

    ipu.config.IPUConfig().configure_ipu_system()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = IPUMultiWorkerStrategy(resolver)
    num_workers, index = strategy.num_replicas_in_sync, resolver.task_id
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(64, "relu")]
        )
        model.add(keras.layers.Dense(10))
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            # The gradients of all workers are added up, so that each has its share of the mean.
            loss = loss_fn(labels, model(images, training=True)) / num_workers
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    (x_train, y_train), (x_test, y_test) = digits_data.load()
    random = np.random.default_rng(0)  # the same order in all workers
    losses = []
    for _ in range(num_epochs):
        batches = random.permutation(len(x_train))[: len(x_train) // BATCH_SIZE * BATCH_SIZE]
        for batch in batches.reshape(-1, num_workers, BATCH_SIZE // num_workers)[:, index]:
            own = strategy.run(step, [tf.constant(x_train[batch]), tf.constant(y_train[batch])])
        losses.append(float(strategy.reduce("SUM", own)))
    accuracy = np.mean(np.argmax(model(x_test), axis=1) == y_test)
    weights = float(sum(np.abs(weight.numpy()).sum() for weight in model.weights))
    found = {"worker": index, "losses": losses, "accuracy": float(accuracy), "weights": weights}
    print(json.dumps(found), flush=True)


def main(num_epochs: int = ARGUMENTS.epochs) -> list[dict]:
    """Starts both workers; prints and returns what each reached."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(2)]
    cluster = {"worker": [f"localhost:{each.getsockname()[1]}" for each in sockets]}
    for each in sockets:
        each.close()
    workers = []
    for index in range(2):
        task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        workers.append(
            subprocess.Popen(
                [sys.executable, __file__, "--epochs", str(num_epochs)],
                env={**os.environ, "TF_CONFIG": json.dumps(task)},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    outputs = [worker.communicate()[0] for worker in workers]
    if any(worker.returncode for worker in workers):
        raise RuntimeError("A worker has failed, and has said above why.")
    found = [json.loads(output.splitlines()[-1]) for output in outputs]
    for each in found:
        print(f"worker {each['worker']}: accuracy {each['accuracy']:.3f}")
    return found


if __name__ == "__main__":
    if "TF_CONFIG" in os.environ:
        train(ARGUMENTS.epochs)
    else:
        main()

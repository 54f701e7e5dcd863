"""Two replicas that train in a session, while another thread takes their losses."""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, steps=(60, "of each replica, in each run"))

import threading
import time

import digits_data
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

BATCH_SIZE = 16
RUNS = 10


def main(steps_per_run: int = ARGUMENTS.steps) -> dict:
    """Trains on the digits; prints and returns what it reached."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 2
    cfg.configure_ipu_system()
    (x_train, y_train), _ = digits_data.load()

    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
        dataset = dataset.shuffle(1000, seed=0).repeat().batch(BATCH_SIZE, drop_remainder=True)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Operation:
            with tf.variable_scope("classifier", use_resource=True):
                weights = tf.get_variable("weights", [64, 10])
            logits = tf.reshape(images, (BATCH_SIZE, 64)) @ weights
            loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
            # Without the wrapper, the weights of the replicas would differ.
            optimizer = ipu.cross_replica_optimizer.CrossReplicaOptimizer(
                tf.train.MomentumOptimizer(0.02, 0.9)
            )
            with tf.control_dependencies([optimizer.minimize(loss)]):
                return outfeed.enqueue(loss)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            train = ipu.ipu_compiler.compile(
                lambda: ipu.loops.repeat(steps_per_run, step, [], infeed)
            )
        dequeued = outfeed.dequeue()
        found: list[np.ndarray] = []
        done = threading.Event()
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), infeed.initializer])

            def take() -> None:
                while not done.is_set():
                    found.append(session.run(dequeued))
                    time.sleep(0.01)

            taking = threading.Thread(target=take)
            taking.start()
            for _ in range(RUNS):
                session.run(train)
            done.set()
            taking.join()
            found.append(session.run(dequeued))
    losses = np.concatenate(found)
    for run, part in enumerate(np.split(losses, RUNS), start=1):
        print(f"run {run}: loss {part.mean():.4f}, of each replica {part.mean(axis=0)}")
    return {"losses": losses}


if __name__ == "__main__":
    main()

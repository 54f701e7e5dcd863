"""Ways to run functions on a device: in a session, and under a strategy."""

import numpy as np
import tensorflow as tf
from in_sessions import compiled, opened

from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy

v1 = tf.compat.v1


class InASession:
    """Runs functions of one argument as TensorFlow 1 does."""

    keeps_values = False

    def __init__(self):
        self._graph = tf.Graph()
        self._graph_scope = self._graph.as_default()
        self._graph_scope.__enter__()
        self._queues = []

    def variable(self, name, value):
        return v1.get_variable(name, initializer=np.float32(value), use_resource=True)

    def infeed(self, dataset):
        self._queues.append(IPUInfeedQueue(dataset))
        return self._queues[-1]

    def compile(self, function, *outfeeds):
        self._x = v1.placeholder(tf.float32, [])
        self._fetched = compiled(function, [self._x])
        self._dequeued = [outfeed.dequeue() for outfeed in outfeeds]
        self._session = opened(*(queue.initializer for queue in self._queues))

    def run(self, x):
        return self._session.run(self._fetched, {self._x: x})

    def sent(self):
        return [self._session.run(each) for each in self._dequeued]

    def read(self, variable):
        return self._session.run(variable)

    def close(self):
        self._graph_scope.__exit__(None, None, None)


class UnderAStrategy:
    """Runs them as TensorFlow 2 does."""

    keeps_values = True

    def __init__(self, jit_compile):
        self._jit_compile = jit_compile
        self._strategy = IPUStrategy()

    def variable(self, name, value):
        with self._strategy.scope():
            return tf.Variable(np.float32(value), name=name)

    def infeed(self, dataset):
        queue = IPUInfeedQueue(dataset)
        assert queue.initializer is None
        return queue

    def compile(self, function, *outfeeds):
        def tensors_of(x):
            # TensorFlow runs an operation of a function, but lets it return none.
            return [value for value in tf.nest.flatten(function(x)) if tf.is_tensor(value)]

        self._function = tf.function(tensors_of, jit_compile=self._jit_compile)
        self._outfeeds = outfeeds

    def run(self, x):
        found = self._strategy.run(self._function, [tf.constant(x)])
        return tf.nest.map_structure(lambda tensor: tensor.numpy(), found)

    def sent(self):
        return [tf.nest.map_structure(np.asarray, each.dequeue()) for each in self._outfeeds]

    def read(self, variable):
        return variable.numpy()

    def close(self):
        pass

"""Operations on each element of tensors, whose shapes broadcast."""

import tensorflow as tf

from ipu_keras.popart.operations.operation import operation


@operation("Add", since=7, elementwise=True)
def add(a, b):
    return a + b


@operation("Relu", elementwise=True)
def relu(x):
    return tf.nn.relu(x)

"""Products of matrices."""

import tensorflow as tf

from ipu_keras.popart.operations.operation import operation


@operation("MatMul")
def matmul(a, b):
    return tf.matmul(a, b)

"""Training with TensorFlow alone: what accumulation, replicas and pipelines are held against."""

import tensorflow as tf


def train(model, loss, optimizer, x, y, *, batch_size, batches_per_update, scale=1.0, epochs=1):
    """Updates a stock model's weights by the sum of the gradients of several batches.

    Args:
        model: It is called on one batch after the other, for training.
        loss: A loss of Keras.
        optimizer: An optimizer of Keras.
        x: Inputs of all batches.
        y: Labels of all batches.
        batch_size: Samples of a batch.
        batches_per_update: How many gradients are added.
        scale: What their sum is multiplied with.
        epochs: Passes over the batches.

    Returns:
        The loss of each batch.
    """
    losses, waiting = [], []
    weights = model.trainable_weights
    for _ in range(epochs):
        for start in range(0, len(x), batch_size):
            batch = slice(start, start + batch_size)
            with tf.GradientTape() as tape:
                value = loss(y[batch], model(x[batch], training=True))
            losses.append(float(value))
            gradients = tape.gradient(value, weights)
            waiting.append([tf.convert_to_tensor(gradient) for gradient in gradients])
            if len(waiting) == batches_per_update:
                sums = [scale * tf.add_n(given) for given in zip(*waiting, strict=True)]
                optimizer.apply(sums, weights)
                waiting = []
    return losses

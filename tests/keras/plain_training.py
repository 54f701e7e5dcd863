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
    optimizer.build(weights)

    # Graphs of TensorFlow's own, as the eager steps of a small model take most of a test's time.
    @tf.function(autograph=False)
    def step(inputs, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(inputs, training=True))
        gradients = tape.gradient(value, weights)
        return value, [tf.convert_to_tensor(gradient) for gradient in gradients]

    @tf.function(autograph=False)
    def update(gradients):
        sums = [scale * tf.add_n(given) for given in zip(*gradients, strict=True)]
        optimizer.apply(sums, weights)

    for _ in range(epochs):
        for start in range(0, len(x), batch_size):
            batch = slice(start, start + batch_size)
            value, gradients = step(tf.constant(x[batch]), tf.constant(y[batch]))
            losses.append(float(value))
            waiting.append(gradients)
            if len(waiting) == batches_per_update:
                update(waiting)
                waiting = []
    return losses

"""A table of a million words on the host: the IPU gets the rows of a batch, not the table.

Words of a made-up language are of one of two kinds, which the model learns; as in any language,
few words are frequent.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(4, "passes over the sentences"))

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

NUM_WORDS, ENCODING = 10**6, 64
BATCH_SIZE, SENTENCE = 256, 16  # 4,096 words in a step
STEPS = 8


class Words(keras.layers.Layer):
    """Looks the rows of words up."""

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding

    def call(self, ids):
        return self.embedding.lookup(ids)


def sentences(num_batches: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Words by Zipf's law, and of which kind each is."""
    random = np.random.default_rng(seed)
    ids = random.zipf(1.3, (num_batches * BATCH_SIZE, SENTENCE)) % NUM_WORDS
    return ids.astype(np.int32), (ids * 2654435761 // 2**9 % 2).astype(np.float32)[..., np.newaxis]


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Trains; prints and returns how well it learned, and how much of the table it touched."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    keras.utils.set_random_seed(0)
    # The mean of a batch makes gradients small: a row gets a 4,096th of it for each occurrence.
    optimizer = ipu.embedding_ops.HostEmbeddingOptimizerSpec(learning_rate=200.0)
    embedding = ipu.embedding_ops.create_host_embedding(
        "words",
        (NUM_WORDS, ENCODING),
        tf.float32,
        optimizer_spec=optimizer,
        initializer=keras.initializers.RandomNormal(stddev=0.02),
    )
    table = embedding.get_embedding_tensor()
    with strategy.scope():
        ids = keras.Input((SENTENCE,), batch_size=BATCH_SIZE, dtype="int32")
        model = keras.Model(ids, keras.layers.Dense(1)(Words(embedding)(ids)))
        model.compile(
            optimizer=keras.optimizers.SGD(0.5),
            loss=keras.losses.BinaryCrossentropy(from_logits=True),
            metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)],
            steps_per_execution=STEPS,
        )
        x, y = sentences(STEPS * 4, seed=1)
        before = tf.gather(table, range(100)).numpy()
        with embedding.register():
            history = model.fit(x, y, BATCH_SIZE, num_epochs, verbose=0, shuffle=False).history
            unseen = model.evaluate(*sentences(STEPS, seed=2), BATCH_SIZE, verbose=0)
    for epoch, loss in enumerate(history["loss"], start=1):
        print(f"epoch {epoch}: loss {loss:.4f}")
    trained = len(np.unique(x))
    print(f"accuracy on other sentences {unseen[1]:.3f}")
    print(f"{trained:,} of {NUM_WORDS:,} rows were trained, on {table.device}")
    frequent = np.intersect1d(np.arange(100), x)
    after = tf.gather(table, range(100)).numpy()
    return {
        "losses": history["loss"],
        "accuracy": unseen[1],
        "table_device": table.device,
        "trained_rows": np.flatnonzero((after != before).any(axis=1)).tolist(),
        "frequent_words": frequent.tolist(),
    }


if __name__ == "__main__":
    main()

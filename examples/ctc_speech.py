"""Recognises words in sound of which nobody knows when each of them begins.

The sound is made up: each word is some steps of its own spectrum, with noise, and silence
of any length before and after it. An LSTM is trained by the CTC loss, which asks for the
words in their order only; a beam search then finds the words in sound that is new.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(12, "passes over the recordings"))

import keras
import numpy as np
from ipu_tensorflow_addons.keras import layers as ipu_layers
from keras import layers, ops
from tensorflow.python import ipu

BATCH_SIZE = 32
MAX_WORDS = 4
MAX_TIME = 32
NUM_FEATURES = 8
SILENCE = 0
WORDS = ("", "stop", "go", "left", "right")


def make_sound(count: int, seed: int) -> tuple[np.ndarray, ...]:
    """Words and what they sound like.

    Args:
        count: How many sequences.
        seed: Of their random numbers.

    Returns:
        Words `(count, MAX_WORDS)`, sound `(count, MAX_TIME, NUM_FEATURES)`, the numbers of
        words `(count,)` and of steps `(count,)`.
    """
    spectra = np.random.default_rng(0).normal(size=(len(WORDS), NUM_FEATURES))
    spectra[SILENCE] = 0
    random = np.random.default_rng(seed)
    words = np.zeros((count, MAX_WORDS), "int32")
    sound = np.zeros((count, MAX_TIME, NUM_FEATURES), "float32")
    num_words = random.integers(1, MAX_WORDS + 1, size=count)
    num_steps = np.zeros(count, "int32")
    for row in range(count):
        spoken = random.integers(1, len(WORDS), size=num_words[row])
        parts = [SILENCE] * random.integers(0, 3)
        for word in spoken:
            parts += [word] * random.integers(2, 6) + [SILENCE] * random.integers(1, 3)
        words[row, : len(spoken)] = spoken
        sound[row, : len(parts)] = spectra[parts]
        num_steps[row] = len(parts)
    sound += 0.4 * random.normal(size=sound.shape)
    return words, sound, num_words.astype("int32"), num_steps


def returned_loss(_, loss):
    """The model returns its loss."""
    return loss


def build() -> tuple[keras.Model, keras.Model]:
    """The model that is trained, and the one that finds words by the same weights."""
    words = keras.Input((MAX_WORDS,), batch_size=BATCH_SIZE, dtype="int32")
    sound = keras.Input((MAX_TIME, NUM_FEATURES), batch_size=BATCH_SIZE)
    num_words = keras.Input((), batch_size=BATCH_SIZE, dtype="int32")
    num_steps = keras.Input((), batch_size=BATCH_SIZE, dtype="int32")
    x = layers.LSTM(32, return_sequences=True)(sound)
    logits = ops.transpose(layers.Dense(len(WORDS))(x), (1, 0, 2))
    loss = ipu_layers.CTCLoss(from_logits=True)(words, logits, num_words, num_steps)
    found = ipu_layers.CTCPredictionsLayer(beam_width=8, from_logits=True)(logits, num_steps)
    training = keras.Model((words, sound, num_words, num_steps), loss)
    training.compile(keras.optimizers.Adam(0.01), loss=returned_loss, steps_per_execution=16)
    inference = keras.Model((sound, num_steps), found)
    inference.compile(steps_per_execution=4)
    return training, inference


def spoken(labels: np.ndarray) -> str:
    """Labels as words."""
    return " ".join(WORDS[label] for label in labels if label != SILENCE)


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Trains, prints what is heard in new sound, and returns how often all words were right."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    keras.utils.set_random_seed(0)
    with strategy.scope():
        training, inference = build()
    known = make_sound(16 * BATCH_SIZE, seed=1)
    nothing = np.zeros(len(known[0]), "float32")
    history = training.fit(known, nothing, batch_size=BATCH_SIZE, epochs=num_epochs, verbose=0)
    losses = history.history["loss"]
    print(f"loss {losses[0]:.2f}, after {num_epochs} epochs {losses[-1]:.3f}")

    words, sound, _, num_steps = make_sound(4 * BATCH_SIZE, seed=2)
    found = inference.predict((sound, num_steps), batch_size=BATCH_SIZE, verbose=0)
    pairs = [(spoken(said), spoken(heard)) for said, heard in zip(words, found, strict=True)]
    for said, heard in pairs[:4]:
        print(f"said: {said:24} heard: {heard}")
    share = float(np.mean([said == heard for said, heard in pairs]))
    print(f"all words right in {share:.0%} of {len(pairs)} recordings")
    return {
        "losses": losses,
        "share": share,
        "variable_devices": {variable.value.device for variable in training.variables},
    }


if __name__ == "__main__":
    main()

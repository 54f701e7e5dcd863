"""Compares how well models of the handwritten digits are trained with halves and with float32.

Run `python benchmarks/digits_in_halves.py`. A convolutional model and a transformer are trained as
programs of halves are: with a loss scale that is found as they train, and optimizers whose numbers
halves can hold (Adam's usual epsilon, 1e-7, is the least but one of all halves). Weights and what
optimizers keep are halves, too; `float16_esr` rounds at random. Shown are the shares of the test
images that are told right, and whether the mean of the seeds is within 1 % of float32's, or above.
"""

import argparse
import os
import pathlib
import sys
from statistics import mean

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("IPU_KERAS_FIRST_STEPS", "0")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))

import keras
from digits_data import NUM_TEST, load  # type: ignore[import-not-found]  # of the examples
from keras import layers
from rich.console import Console
from rich.table import Table
from tensorflow.python import ipu

BATCH_SIZE = 32
FLOAT32, HALF, STOCHASTIC = "float32", "float16", "float16_esr"
# How far below float32's a share may be.
GOAL = 0.01


def cnn() -> keras.Model:
    """Two blocks of convolution and pooling."""
    model = keras.Sequential([keras.Input((8, 8, 1))])
    for filters in (16, 32):
        model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
        model.add(layers.MaxPooling2D())
    model.add(layers.Flatten())
    model.add(layers.Dense(10))
    return model


def transformer() -> keras.Model:
    """Two blocks of attention among the eight rows of an image."""
    pixels = keras.Input((8, 8, 1))
    x = layers.Dense(32)(layers.Reshape((8, 8))(pixels))
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 8)(x, x))
        hidden = layers.Dense(64, activation="relu")(x)
        x = layers.LayerNormalization()(x + layers.Dense(32)(hidden))
    return keras.Model(pixels, layers.Dense(10)(layers.Flatten()(x)))


MODELS = {
    "cnn": (cnn, lambda: keras.optimizers.SGD(0.05, momentum=0.9)),
    "transformer": (transformer, lambda: keras.optimizers.Adam(0.002, epsilon=1e-3)),
}


def accuracy(model: str, numbers: str, seed: int, num_epochs: int) -> float:
    """Returns the share of test images that a model tells right once it is trained."""
    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.floating_point_behaviour.esr = numbers == STOCHASTIC
    config.configure_ipu_system()
    ipu.utils.reset_ipu_seed(seed)
    keras.utils.set_random_seed(seed)
    is_half = numbers != FLOAT32
    keras.config.set_dtype_policy(HALF if is_half else FLOAT32)
    (x, y), (x_test, y_test) = load()
    build, optimizer_of = MODELS[model]
    with ipu.ipu_strategy.IPUStrategy().scope():
        built, optimizer = build(), optimizer_of()
        if is_half:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1024.0)
        built.compile(
            optimizer,
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            # Divides the steps of an epoch, and those of the test.
            steps_per_execution=NUM_TEST // BATCH_SIZE,
        )
        built.fit(x, y, batch_size=BATCH_SIZE, epochs=num_epochs, verbose=0)
        found = built.evaluate(x_test, y_test, batch_size=BATCH_SIZE, verbose=0)
    keras.backend.clear_session()
    return found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="*", choices=tuple(MODELS), default=tuple(MODELS))
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    table = Table("model", "numbers", "by seed", "mean", "goal")
    for model in options.models:
        means: dict[str, float] = {}
        for numbers in (FLOAT32, HALF, STOCHASTIC):
            found = [accuracy(model, numbers, k, options.epochs) for k in range(options.seeds)]
            means[numbers] = mean(found)
            above = means[numbers] - means[FLOAT32]
            goal = "" if numbers == FLOAT32 else "met" if above >= -GOAL else "not met"
            shares = " ".join(f"{share:.4f}" for share in found)
            table.add_row(model, numbers, shares, f"{means[numbers]:.4f}", goal)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()

"""Large batches with LAMB, whose first moments take half of the memory.

Batches of 352 digits need few, large steps. LAMB makes them as large as each weight can bear.
Its first moments are kept in float16, which changes the result little; the second moments are
too small for that type.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(15, "passes over the training images"))

import digits_data
import keras
from ipu_tensorflow_addons.keras.optimizers import LAMBIpuOptimizer
from keras import layers
from tensorflow.python import ipu

BATCH_SIZE = 352


def train(strategy: ipu.ipu_strategy.IPUStrategy, m_dtype: str, num_epochs: int) -> dict:
    """Trains an MLP on the digits; returns what it reached, and the bytes of the moments."""
    (x_train, y_train), test = digits_data.load()
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                layers.Flatten(),
                layers.Dense(128, activation="relu"),
                layers.LayerNormalization(),
                layers.Dense(10),
            ]
        )
        optimizer = LAMBIpuOptimizer(
            keras.optimizers.schedules.PolynomialDecay(0.05, 4 * num_epochs),
            weight_decay_rate=0.01,
            # Parts of the names of variables.
            exclude_from_weight_decay=["bias", "layer_normalization"],
            m_dtype=m_dtype,
        )
        model.compile(
            optimizer=optimizer,
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=4,
        )
        history = model.fit(x_train, y_train, BATCH_SIZE, num_epochs, verbose=0)
        _, accuracy = model.evaluate(*test, batch_size=88, verbose=0)
    state = [v.value for v in optimizer.variables if "momentum" in v.name or "velocity" in v.name]
    return {
        "losses": history.history["loss"],
        "accuracy": accuracy,
        "state_bytes": sum(v.dtype.size * v.shape.num_elements() for v in state),
        "variable_devices": {v.device for v in state},
    }


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Trains with moments of both types; prints and returns what they reached."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    results = {}
    for m_dtype in ("float32", "float16"):
        results[m_dtype] = result = train(strategy, m_dtype, num_epochs)
        print(
            f"first moments of {m_dtype}: test accuracy {result['accuracy']:.3f}, "
            f"{result['state_bytes']} bytes of state"
        )
    return results


if __name__ == "__main__":
    main()

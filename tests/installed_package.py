"""What an installed package must do in an environment that has nothing else of the project.

`tests/distribution.py` and cibuildwheel run it; it imports nothing of the project's folder.
"""

import importlib.metadata
from pathlib import Path

import keras
import numpy as np
from tensorflow.python import ipu

import ipu_keras


def main() -> None:
    installed = Path(ipu_keras.__file__).parent
    assert "site-packages" in installed.parts, installed
    assert ipu_keras.__version__ == importlib.metadata.version("ipu-keras")
    # Messages name these.
    for document in ("ipu_config.md", "popart.md", "how-to/data.md"):
        assert (installed / "docs" / document).is_file(), document

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=4)
    inputs = np.random.default_rng(0).standard_normal((64, 4)).astype("float32")
    labels = inputs[:, :3].argmax(1).astype("int32")
    losses = model.fit(inputs, labels, 8, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0], losses
    assert "IPU:0" in model.layers[0].kernel.value.device
    report = ipu_keras.last_report()
    assert report is not None
    assert report.to_json().startswith("{")
    print(f"ipu-keras {ipu_keras.__version__} imports, trains and reports.")


if __name__ == "__main__":
    main()

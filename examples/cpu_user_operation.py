"""An operation of one's own in C++, on the host: a Huber loss with its gradient.

The library is compiled here. In a model on the IPU it is called in every step, and in every
gradient.
"""

import os
import subprocess
import tempfile
from pathlib import Path

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(20, "passes over the samples"))

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

SOURCE = """
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

extern "C" {
std::int32_t custom_op_api_level = 5;

// Of each error: half its square up to 1, and from there on as steep as at 1.
void Huber(const std::vector<const void*>& data,
           const std::vector<std::uint32_t>& number_of_elements,
           const std::vector<void*>& outputs, const std::string& attributes,
           const std::string& name) {
  const float* error = static_cast<const float*>(data[0]);
  float* loss = static_cast<float*>(outputs[0]);
  for (std::uint32_t k = 0; k < number_of_elements[0]; ++k) {
    float size = std::abs(error[k]);
    loss[k] = size < 1 ? 0.5f * size * size : size - 0.5f;
  }
}

// Its inputs: the gradient of the losses, the losses, the errors.
void Huber_grad(const std::vector<const void*>& data,
                const std::vector<std::uint32_t>& number_of_elements,
                const std::vector<void*>& outputs, const std::string& attributes,
                const std::string& name) {
  const float* upstream = static_cast<const float*>(data[0]);
  const float* error = static_cast<const float*>(data[2]);
  float* gradient = static_cast<float*>(outputs[0]);
  for (std::uint32_t k = 0; k < number_of_elements[2]; ++k)
    gradient[k] = upstream[k] * std::fmax(-1.0f, std::fmin(1.0f, error[k]));
}
}
"""


def compile_library(folder: Path) -> Path:
    """The library, made by the system's compiler."""
    source, library = folder / "huber.cc", folder / "libhuber.so"
    source.write_text(SOURCE)
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return library


def main(num_epochs: int = ARGUMENTS.epochs) -> dict:
    """Fits a line to data with outliers; prints and returns what it found."""
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (256, 1)).astype(np.float32)
    y = 3 * x + 1
    y[::16] += 50  # which a mean squared error would follow
    ipu.config.IPUConfig().configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        library = compile_library(Path(folder))

        def huber(labels, predictions):
            error = predictions - labels
            outs = {"output_types": [error.dtype], "output_shapes": [error.shape]}
            [loss] = ipu.custom_ops.cpu_user_operation([error], library, outs, op_name="Huber")
            return tf.reduce_mean(loss, axis=-1)

        with strategy.scope():
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.2), huber, steps_per_execution=16)
            history = model.fit(x, y, batch_size=16, epochs=num_epochs, verbose=0)
    slope, offset = (float(weight.numpy().item()) for weight in model.weights)
    losses = history.history["loss"]
    print(f"y = {slope:.2f} x + {offset:.2f}, with a loss of {losses[0]:.2f} at first")
    return {"slope": slope, "offset": offset, "losses": losses}


if __name__ == "__main__":
    main()

"""Reports of whole programs beside what is published of them (`hardware/programs.csv`).

Of programs that ran on IPUs, the throughput; of those that Graphcore's own IPU Model was tested
with, cycles without copies with the host, bytes over all tiles and bytes of the fullest one, both
without gaps. The IPU Model is no hardware, and its figures depend on the SDK by up to 20 %.

What is configured holds for a process, and so does Keras's dtype policy: `comparisons` models the
programs in one of their own.
"""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf
from keras import layers

import ipu_keras
from ipu_keras.config import IPUConfig
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.pipelining_ops import PipelineSchedule
from ipu_keras.report.report import Report

PROGRAMS = Path(__file__).resolve().parent / "hardware" / "programs.csv"

# Of the tests of the IPU Model.
STEPS = 100

_RESNET50_STAGE_ENDS = (
    "conv2_block1_out",
    "conv2_block3_out",
    "conv3_block1_out",
    "conv3_block3_out",
    "conv4_block1_out",
    "conv4_block4_out",
)


def comparisons() -> list[dict[str, Any]]:
    """Every program with what its report says, in the order of the data file.

    Returns:
        Of each: `program`, `target`, `reference` (whose figures are published), what is modelled
        divided by what is published (`throughput`, `cycles`, `total_bytes`, `fullest_tile_bytes`;
        `None` if it is not published), whether it `fits`, as all of them did, and its
        `configuration` in words.
    """
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"The programs could not be modelled: {done.stderr}")
    return json.loads(done.stdout)


def published() -> list[dict[str, str]]:
    """The rows of the data file."""
    with PROGRAMS.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _comparison(row: Mapping[str, str]) -> dict[str, Any]:
    report = _MODELLED[row["id"]](row["target"])
    memory = report.model.memory
    gaps = memory.bytes_by_category["gaps"]
    modelled = {
        "samples_per_second": report.samples_per_second,
        "cycles": report.compute_cycles * STEPS,
        "total_bytes": memory.total_bytes - gaps,
        "fullest_tile_bytes": memory.max_tile_bytes - gaps // len(memory.peak_by_tile),
    }
    found = {
        name: round(value / float(row[name]), 2) if row[name] else None
        for name, value in modelled.items()
    }
    return {
        "program": row["program"],
        "target": row["target"],
        "reference": row["reference"],
        "throughput": found.pop("samples_per_second"),
        **found,
        "fits": report.fits,
        "configuration": row["configuration"],
    }


def _mnist_mlp(target: str) -> Report:
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dense(128, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("sgd", "sparse_categorical_crossentropy")
    specs = tf.TensorSpec((32, 28, 28)), tf.TensorSpec((32,), tf.int32)
    return ipu_keras.profile(model, *specs, target=target, steps_per_execution=100)


def resnet50(
    target: str, *, micro_batch: int = 20, accumulation: int = 6, num_replicas: int = 16
) -> Report:
    """ResNet-50 as it was trained on pods; without options, as in the data file."""
    config = IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float16")
    try:
        return ipu_keras.profile(
            _pipelined_resnet50(accumulation),
            tf.TensorSpec((micro_batch, 224, 224, 3), tf.uint8),
            tf.TensorSpec((micro_batch,), tf.int32),
            target=target,
            num_replicas=num_replicas,
            recomputation=True,
            steps_per_execution=accumulation,
            maximum_cross_replica_sum_buffer_size=50 * 2**20,
            convolution_options={"availableMemoryProportion": "0.15", "partialsType": "half"},
            matmul_options={"partialsType": "half"},
        )
    finally:
        keras.config.set_dtype_policy(policy)


def _pipelined_resnet50(accumulation: int) -> keras.Model:
    with IPUStrategy().scope():
        images = keras.Input((224, 224, 3), dtype="uint8")
        scaled = layers.Rescaling(1 / 255)(images)
        model = keras.applications.ResNet50(weights=None, input_tensor=scaled)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    assignment = model.get_pipeline_stage_assignment()
    stage = 0
    for one in assignment:
        one.pipeline_stage = stage
        stage += one.layer.name in _RESNET50_STAGE_ENDS
    model.set_pipeline_stage_assignment(assignment)
    model.set_pipelining_options(
        accumulation,
        pipeline_schedule=PipelineSchedule.Sequential,
        device_mapping=[0] * (stage + 1),
    )
    return model


def _of_ipu_model(stack: list[layers.Layer], shape: tuple[int, ...], target: str) -> Report:
    """What Graphcore's tests trained on the IPU Model: a stack, and a layer of 16 features."""
    model = keras.Sequential([keras.Input(shape[1:]), *stack, layers.Dense(16)])
    model.compile("adam", "mse")
    specs = tf.TensorSpec(shape), tf.TensorSpec((shape[0], 16))
    return ipu_keras.profile(model, *specs, target=target, steps_per_execution=STEPS)


def _rnn1(target: str) -> Report:
    return _of_ipu_model([layers.SimpleRNN(256)], (2, 5, 16), target)


def _lstm1(target: str) -> Report:
    stack = [layers.LSTM(128, return_sequences=True), layers.LSTM(384)]
    return _of_ipu_model(stack, (2, 3, 16), target)


def _cnn1(target: str) -> Report:
    stack = [
        layers.Conv1D(128, 4),
        layers.MaxPooling1D(2, 1),
        layers.Conv1D(128, 4),
        layers.MaxPooling1D(2, 2),
        layers.Conv1D(128, 4),
        layers.Conv1D(128, 4),
        layers.Flatten(),
    ]
    return _of_ipu_model(stack, (1, 32, 16), target)


_MODELLED: Mapping[str, Callable[[str], Report]] = {
    "mnist_mlp": _mnist_mlp,
    "resnet50": resnet50,
    "tf_rnn1": _rnn1,
    "tf_lstm1": _lstm1,
    "model_cnn1": _cnn1,
}


if __name__ == "__main__":
    json.dump([_comparison(row) for row in published()], sys.stdout)

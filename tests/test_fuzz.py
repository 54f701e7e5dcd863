"""A few of the models and calls that `make fuzz` makes, and that it would see a difference."""

import collections
import random

import keras
import numpy as np
import onnx_files
import onnx_values
import pytest
import random_training
import tensorflow as tf
from correct_calls import correct_calls
from isolated import Crash, isolated
from random_graphs import random_graph
from random_training import Verdict, compare, random_case, run_here
from wrong_calls import work

from ipu_keras import popart
from ipu_keras.machine.system import SYSTEM


@pytest.fixture(autouse=True)
def default_system():
    SYSTEM.reset()
    yield
    SYSTEM.reset()


# In the second row: weights of classes; nested models; a second input, with weights of classes;
# nested and shared layers and a second output with replicas; masks.
@pytest.mark.parametrize("seed", [0, 1, 6, 7, *(36, 52, 34, 57, 58)])
def test_models_train_as_in_stock_keras(seed):
    verdict, text = compare(random_case(seed))
    assert verdict is Verdict.EQUAL, text


def test_a_difference_is_seen(monkeypatch):
    def run_with_a_slip(case):
        outcome = run_here(case)
        outcome.weights[0] = outcome.weights[0] + np.float32(0.001)
        return outcome

    monkeypatch.setattr("random_training.run_here", run_with_a_slip)
    verdict, text = compare(random_case(0))
    assert verdict is Verdict.DIFFERENT
    assert "nudged" in text


def test_noise_reaches_an_optimizer_whose_losses_are_scaled():
    inner = keras.optimizers.SGD(1.0)
    random_training._add_noise(inner, 0.25)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=1.0)
    weight = keras.Variable([0.0, 0.0])
    optimizer.apply([tf.constant([1.0, 1.0])], [weight])
    np.testing.assert_array_equal(np.abs(weight.numpy() + 1), 0.25)


def test_a_seed_is_always_the_same_case():
    assert str(random_case(11)) == str(random_case(11))
    assert len({str(random_case(seed)) for seed in range(50)}) == 50


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(8))
def test_onnx_models_compute_and_train_as_the_reference_says(seed):
    verdict, text, model = onnx_values.work(seed)
    assert verdict == "EQUAL", f"{text}\n{model}"


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_operation_of_onnx_is_seen(monkeypatch):
    seeds = range(8)
    graphs = [random_graph(seed, smooth=True) for seed in seeds]
    assert [str(random_graph(seed, smooth=True)) for seed in seeds] == list(map(str, graphs))
    before = onnx_values.computed

    def with_a_slip(*arguments):
        return [each + np.ones_like(each) for each in before(*arguments)]

    monkeypatch.setattr(onnx_values, "computed", with_a_slip)
    assert "right is" in onnx_values.difference(graphs[2])
    monkeypatch.setattr(onnx_values, "RATE", 2 * onnx_values.RATE)
    monkeypatch.setattr("ipu_keras.popart.ConstSGD", lambda rate: popart.SGD({}))
    assert "gradient of" in onnx_values.difference_in_training(graphs[2], 2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "call", [call for call in correct_calls() if call.cheap], ids=lambda c: c.name
)
def test_calls_that_wrong_ones_are_made_of_work(call):
    call.function(**call.arguments)


def test_wrong_calls_are_judged():
    verdicts = [work(seed)[0].split(":")[0] for seed in range(60)]
    assert set(verdicts) <= {"refused", "accepted", "UNNAMED"}
    assert verdicts.count("refused") > 20


@pytest.fixture(scope="module")
def onnx_state(tmp_path_factory):
    """What `onnx_files` has of a process that has computed all models that are right."""
    place = tmp_path_factory.mktemp("onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(onnx_files, "_STATE", {})
        onnx_files.prepare(place)
        return onnx_files._STATE


@pytest.fixture
def onnx_folder(onnx_state, monkeypatch):
    monkeypatch.chdir(onnx_state["folder"])
    monkeypatch.setattr(onnx_files, "_STATE", onnx_state)
    return onnx_state["folder"]


@pytest.mark.filterwarnings("ignore")
def test_damaged_onnx_files_are_judged(onnx_folder, monkeypatch):
    verdicts = collections.Counter(onnx_files.verdict_on(seed) for seed in range(120))
    named = {
        "refused",
        "refused in computing",
        "refused by the session",
        "loaded",
        "computed",
        "ran",
    }
    assert set(verdicts) <= named
    assert min(verdicts["refused"], verdicts["ran"]) > 20
    # Loading is where most damage is met, and takes a hundredth of what running takes.
    for name in ("_computed", "_ran"):
        monkeypatch.setattr(onnx_files, name, lambda *_: "loaded")
    assert {onnx_files.verdict_on(seed) for seed in range(120, 300)} == {"refused", "loaded"}


def test_a_damaged_file_is_always_the_same(onnx_state):
    content = onnx_state["models"][-1]
    damaged = [onnx_files.damaged(random.Random(seed), content) for seed in range(100)]
    again = [onnx_files.damaged(random.Random(seed), content) for seed in range(100)]
    assert damaged == again
    assert len(set(damaged)) > 80


def test_files_outside_of_the_models_folder_are_seen(onnx_folder, monkeypatch):
    def load(source):
        for path in (onnx_folder / "weights.bin", "up/model/weights.bin", "link", "/etc/passwd"):
            onnx_files.note_opened("open", (path, "r", 0))
        raise KeyError("x")

    monkeypatch.setattr("ipu_keras.popart.files.loading.load", load)
    secret = str(onnx_folder.parent / "secret.bin")
    assert onnx_files.verdict_on(0) == f"OUTSIDE: {[secret, '/etc/passwd']}"


def test_what_ends_its_process_is_reported_and_the_others_go_on():
    ends = "__import__('os')._exit(3)"
    # Of a function of this module the processes would import TensorFlow.
    found = dict(isolated(eval, ["1 * 1", ends, "3 * 3"], seconds=60))
    assert found == {"1 * 1": 1, ends: Crash("ended with exit code 3"), "3 * 3": 9}

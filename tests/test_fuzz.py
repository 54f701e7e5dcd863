"""A few of the models and calls that `make fuzz` makes, and that it would see a difference."""

import collections
import random

import numpy as np
import onnx_files
import pytest
from correct_calls import correct_calls
from isolated import Crash, isolated
from random_training import Verdict, compare, random_case, run_here
from wrong_calls import work

from ipu_keras.machine.system import SYSTEM


@pytest.fixture(autouse=True)
def default_system():
    SYSTEM.reset()
    yield
    SYSTEM.reset()


@pytest.mark.parametrize("seed", [0, 1, 5, 7])
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


def test_a_seed_is_always_the_same_case():
    assert str(random_case(11)) == str(random_case(11))
    assert len({str(random_case(seed)) for seed in range(50)}) == 50


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
def test_damaged_onnx_files_are_judged(onnx_folder):
    verdicts = collections.Counter(onnx_files.verdict_on(seed) for seed in range(300))
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

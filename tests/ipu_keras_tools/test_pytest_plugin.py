"""The plugin in runs of pytest of their own."""

import json
import subprocess
import sys

import pytest

# Before a run within this process, which forgets afterwards what it was the first to import.
import ipu_keras_tools.configured_ipus
import ipu_keras_tools.held_reports  # noqa: F401
from ipu_keras.machine.system import SYSTEM
from ipu_keras.report import html  # noqa: F401

pytest_plugins = ["pytester"]

PLUGIN = "ipu_keras_tools.pytest_plugin"

MODEL = """
import keras
import pytest
import tensorflow as tf

def model(units=16):
    dense = keras.layers.Dense(units, name="wide")
    layers = [keras.Input((64,)), dense, keras.layers.Dense(4, name="last")]
    return keras.Sequential(layers, name="net")

SPEC = tf.TensorSpec((32, 64))
"""


@pytest.fixture
def run(pytester):
    """Runs pytest on a source, and returns the result."""

    def running(source, *arguments):
        pytester.makepyfile(test_net=MODEL + source)
        return pytester.runpytest_inprocess("-p", PLUGIN, "-p", "no:cacheprovider", *arguments)

    return running


def test_neither_tensorflow_nor_keras_is_imported():
    program = (
        f"import {PLUGIN}, sys; print({{'tensorflow', 'keras', 'ipu_keras'}} & {{*sys.modules}})"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert process.stdout == "set()\n"


def test_a_budget_is_kept(run):
    result = run(
        """
@pytest.mark.ipu_fits(target="bow", max_cycles=600_000, max_tile_memory=0.9)
def test_it(ipu_report):
    report = ipu_report(model(), SPEC)
    assert report.model.target.name == "bow"
    assert report.num_ipus == 1
    assert ipu_report(model(), SPEC, target="gc2").model.target.name == "gc2"

def test_without_a_marker(ipu_report):
    assert ipu_report(model(), SPEC).model.target.name == "gc200"
"""
    )
    result.assert_outcomes(passed=2)


def test_more_cycles_than_the_budget(run):
    source = """
@pytest.mark.ipu_fits(max_cycles=100)
def test_it(ipu_report):
    ipu_report(model(UNITS), SPEC)
"""
    first = run(source.replace("UNITS", "16"), "--ipu-update")
    first.assert_outcomes(failed=1)
    first.stdout.fnmatch_lines(
        [
            "net.predict does not keep ipu_fits(max_cycles=100)",
            "- max_cycles: a step takes * cycles, *,*.* times 100",
            "",
            "net.predict on gc200: * cycles per step, * ms, bound by the *",
            "It fits: * of 638,976 bytes on tile *",
            "Layers (the longest of *)*",
            "*net/wide*derived*",
            "There is no baseline to compare it with: * writes test_it.json",
            "What would help, by the model:",
            "1. 32 steps per execution: less, and still too much, * cycles per step, * bytes *",
            "* IPU baselines written *",
            "ipu_baselines/test_net/test_it.json",
        ]
    )
    wider = run(source.replace("UNITS", "512"))
    wider.assert_outcomes(failed=1)
    wider.stdout.fnmatch_lines(
        [
            "What has grown since the baseline test_it.json:",
            "*cycles_per_step *+*",
            "*wide *+*",
        ]
    )
    assert "IPU baselines written" not in wider.stdout.str()
    same = run(source.replace("UNITS", "16"))
    same.stdout.fnmatch_lines(["Nothing has grown since the baseline test_it.json"])


def test_more_memory_than_the_budget(run):
    result = run(
        """
@pytest.mark.ipu_fits(max_tile_memory=0.001)
def test_share(ipu_report):
    ipu_report(model(), SPEC)

@pytest.mark.ipu_fits(target="gc2")
def test_all(ipu_report):
    ipu_report(model(1 << 20), SPEC)
"""
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "net.predict does not keep ipu_fits(max_tile_memory=0.001)",
            "- max_tile_memory: * bytes are *% of the fullest tile, and may be 0.1%",
            "net.predict does not keep ipu_fits(target='gc2')",
            "- It does not fit. *ut of memory on tile *",
            "What would help, by the model:",
            "1. *",
        ]
    )


def test_several_ipus(run):
    result = run(
        """
@pytest.mark.ipu_fits(num_ipus=2)
def test_layers_are_shared(ipu_report):
    assert ipu_report(model(), SPEC).num_ipus == 2

@pytest.mark.ipu_fits(num_ipus=2)
def test_replicas(ipu_report):
    assert ipu_report(model(), SPEC, num_replicas=2).num_ipus == 2
    with pytest.raises(pytest.fail.Exception, match="takes 4 IPUs, and may take 2"):
        ipu_report(model(), SPEC, num_replicas=4)

@pytest.mark.ipu_fits(num_ipus=2)
def test_a_pipeline(ipu, ipu_report):
    with ipu.scope():
        staged = model()
        staged.set_pipeline_stage_assignment([0, 1])
    report = ipu_report(staged, SPEC)
    assert (report.num_ipus, len(report.pipeline.stages)) == (2, 2)
"""
    )
    result.assert_outcomes(passed=3)


def test_the_fixture_configures_and_resets(run):
    SYSTEM.reset()
    result = run(
        """
from tensorflow.python import ipu as api

@pytest.mark.ipu_fits(num_ipus=4)
def test_marker(ipu):
    assert (ipu.num_ipus, ipu.target) == (4, "gc200")
    assert api.utils.get_num_of_ipus_in_device("/device:IPU:0") == 4

@pytest.mark.parametrize("ipu", [1, 3, {"num_ipus": 2, "target": "bow"}], indirect=True)
def test_parameters(ipu, ipu_report):
    assert api.utils.get_num_of_ipus_in_device("/device:IPU:0") == ipu.num_ipus
    assert ipu_report(model(), SPEC).num_ipus == {3: 2}.get(ipu.num_ipus, ipu.num_ipus)

@pytest.mark.ipu_fits(target="gc2")
def test_trains(ipu):
    with ipu.scope():
        net = model()
    net.compile("sgd", "mse", steps_per_execution=2)
    net.fit(tf.zeros((64, 64)), tf.zeros((64, 4)), batch_size=32, verbose=0)
    assert "IPU:0" in net.weights[0].value.device
    import ipu_keras
    assert ipu_keras.last_report().model.target.name == "gc2"

def test_nothing_is_left():
    from ipu_keras.machine.system import SYSTEM
    import os
    assert not SYSTEM.devices
    assert "use_ipu_model" not in os.environ.get("TF_POPLAR_FLAGS", "")
""",
        "-W",
        "error",
    )
    result.assert_outcomes(passed=6)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("'bow'", "`ipu_fits` takes named arguments only: *. Received: 'bow'"),
        ("max_cycle=1", "`ipu_fits` has no argument `max_cycle`. Did you mean `max_cycles`? *"),
        (
            "target='gc300'",
            "`target` must be one of gc2, gc200, bow, c600. Received: target='gc300'",
        ),
        ("num_ipus=17", "`num_ipus` must be a positive integer, at most 16. Received: num_ipus=17"),
        ("max_cycles=1.5", "`max_cycles` must be a positive integer. Received: 1.5 of type float"),
        ("max_tile_memory=90", "`max_tile_memory` must be a share of *. Received: *=90"),
    ],
)
def test_a_wrong_marker_is_an_error(run, marker, message):
    source = "def test_it(ipu_report): ipu_report(model(), SPEC)"
    result = run(f"@pytest.mark.ipu_fits({marker})\n{source}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])


def test_a_budget_that_nothing_is_held_to(run):
    result = run(
        """
@pytest.mark.ipu_fits(max_cycles=1)
def test_no_fixture(): pass

@pytest.mark.ipu_fits(max_cycles=1)
def test_no_call(ipu_report): pass

@pytest.mark.ipu_fits(max_cycles=1)
def test_own_failure(ipu_report): assert not 1
"""
    )
    result.assert_outcomes(failed=3)
    # Where CI is set, pytest's summary at the end repeats the messages: only the failures count.
    failures = result.stdout.str().partition("short test summary info")[0]
    assert failures.count("held nothing to it: call the fixture") == 2


def test_the_nearest_marker_counts(run):
    result = run(
        """
@pytest.mark.ipu_fits(target="bow", max_cycles=1)
class TestNet:
    @pytest.mark.ipu_fits(max_cycles=10**9)
    def test_it(self, ipu_report):
        assert ipu_report(model(), SPEC).model.target.name == "bow"
""",
        "--ipu-update",
        "--strict-markers",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["ipu_baselines/test_net/TestNet.test_it.json"])


def test_baselines_are_small_and_written_once(run, pytester):
    source = """
def test_it(ipu_report):
    ipu_report(model(), SPEC)
    ipu_report(model(32), SPEC)
"""
    run(source, "--ipu-update").stdout.fnmatch_lines(
        ["ipu_baselines/test_net/test_it.2.json", "ipu_baselines/test_net/test_it.json"]
    )
    folder = pytester.path / "ipu_baselines" / "test_net"
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(first) == {"test_it.json", "test_it.2.json"}
    text = first["test_it.json"].decode()
    found = json.loads(text)
    assert text == json.dumps(found, indent=2, sort_keys=True) + "\n"
    assert len(text) < 2000
    assert (found["program"], found["schema"], found["batch_size"]) == ("net.predict", 1, 32)
    # 32 rows times 64 by 16 and 16 by 4 weights, a product and a sum each, and the biases.
    assert found["flops_per_step"] == 2 * 32 * (64 * 16 + 16 * 4) + 32 * (16 + 4)
    assert sum(found["families"].values()) == sum(found["layers"].values())
    again = run(source, "--ipu-update")
    assert "IPU baselines written" not in again.stdout.str()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first


def test_names_that_keras_makes_up_do_not_depend_on_tests_before(run, pytester):
    run(
        """
def unnamed():
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(4), keras.layers.Dense(4)])

@pytest.fixture(scope="module", autouse=True)
def chosen_by_the_project():
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy("float32")

@pytest.mark.parametrize("number", [1, 2])
def test_it(ipu_report, number):
    assert keras.config.dtype_policy().name == "mixed_float16"
    ipu_report(unnamed(), SPEC)
""",
        "--ipu-update",
    ).assert_outcomes(passed=2)
    first, second = (pytester.path / "ipu_baselines" / "test_net").iterdir()
    assert first.read_text() == second.read_text()
    assert {"sequential/dense", "sequential/dense_1"} <= set(
        json.loads(first.read_text())["layers"]
    )


def test_a_baseline_that_is_none(run, pytester):
    source = "def test_it(ipu_report): ipu_report(model(), SPEC)"
    folder = pytester.mkdir("ipu_baselines") / "test_net"
    folder.mkdir()
    (folder / "test_it.json").write_text('{"schema": 0}')
    result = run(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["The baseline *test_it.json cannot be read: it has no *schema*"])
    run(source, "--ipu-update").assert_outcomes(passed=1)
    run(source).assert_outcomes(passed=1)


def test_with_xdist(pytester):
    tests = "\n".join(
        f"""
@pytest.mark.ipu_fits(max_cycles={limit})
def test_{name}(ipu_report): ipu_report(model(), SPEC)
"""
        for name, limit in (("kept", 10**9), ("broken", 1))
    )
    pytester.makepyfile(test_net=MODEL + tests)
    result = pytester.runpytest_subprocess("-p", PLUGIN, "-n", "2", "--ipu-update")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "net.predict does not keep ipu_fits(max_cycles=1)",
            "* IPU baselines written *",
            "ipu_baselines/test_net/test_broken.json",
            "ipu_baselines/test_net/test_kept.json",
        ]
    )

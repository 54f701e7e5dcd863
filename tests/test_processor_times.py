"""Processor time of tests, as pytest is told to write it."""

import json
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

SOURCE = """
import subprocess, sys, time
import pytest

def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

WORK = "import time\\nwhile time.process_time() < 0.4: pass"

@pytest.fixture
def working():
    work(0.2)
    yield
    work(0.1)

def test_phases(working):
    work(0.3)

def test_nothing():
    time.sleep(0.2)

def test_child():
    subprocess.run([sys.executable, "-S", "-c", WORK], check=True)

@pytest.fixture(scope="module")
def server(request):
    from processor_times import watch

    process = subprocess.Popen([sys.executable, "-S", "-c", WORK + "\\ninput()"], stdin=-1)
    watch(request.config, process.pid)
    yield
    process.communicate(b"\\n")

def test_child_that_goes_on(server):
    time.sleep(2)

def test_failing(server):
    work(0.1)
    assert False
"""


def test_seconds_of_each_phase_of_tests_in_another_process(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    pytester.makepyfile(test_x=SOURCE)
    pytester.runpytest_subprocess(
        *("-p", "processor_times", "--processor-times=times.json", "--numprocesses=1")
    ).assert_outcomes(passed=4, failed=1)
    times = json.loads((pytester.path / "times.json").read_text("utf-8"))
    found = {test.partition("::")[2]: one for test, one in times.items()}
    about = {
        "test_phases": (0.2, 0.3, 0.1),
        "test_nothing": (0.0, 0.0, 0.0),
        "test_child": (0.0, 0.4, 0.0),
        "test_failing": (0.0, 0.1, 0.0),
    }
    for test, seconds in about.items():
        phases = [found[test][phase] for phase in ("setup", "call", "teardown")]
        assert phases == pytest.approx(seconds, abs=0.1), test
    # It goes on from the setup to the call, and is not counted again when it ends.
    first = found["test_child_that_goes_on"]
    assert first["setup"] + first["call"] == pytest.approx(0.4, abs=0.15)
    # Who comes later uses what was set up for the first.
    assert first["first"] <= first["setup"]
    assert found["test_failing"]["first"] == 0
    assert found["test_failing"]["fixtures"] == first["fixtures"] == {"server": first["first"]}
    assert found["test_phases"]["fixtures"] == {}

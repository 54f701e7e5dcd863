"""What the Makefile installs on which machine."""

import subprocess

import pytest
from project_imports import PROJECT


@pytest.mark.parametrize(
    ("machine", "extra"),
    [
        ("Linux x86_64", "tensorflow-cpu"),
        ("Linux aarch64", "tensorflow"),
        ("Darwin arm64", "tensorflow"),
        ("Darwin x86_64", "tensorflow"),
    ],
)
def test_the_wheel_of_tensorflow_is_one_that_the_machine_has(machine, extra):
    command = ["make", "--dry-run", "--always-make", f"MACHINE={machine}", ".venv/demo.stamp"]
    process = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert f'pip install "ipu-keras[{extra},demo]"' in process.stdout

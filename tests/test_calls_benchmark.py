"""The benchmark of short calls, in as few turns as there can be."""

import json
import os
import subprocess
import sys

import calls
import pytest


def run(file, *options):
    """What the benchmark printed, and the times that it wrote."""
    command = [sys.executable, calls.__file__, *options, "--json", file]
    printed = subprocess.run(
        command, env=os.environ, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return printed, json.loads(file.read_text())


def check(times):
    for by_side in times.values():
        assert list(by_side) == [calls.STOCK, calls.HERE]
        assert all(len(turns) == 2 and min(turns) > 0 for turns in by_side.values())


def test_it_measures_every_call_on_every_side(tmp_path):
    printed, found = run(tmp_path / "times.json", "--only", "calls", "--turns", "2")
    assert "Without Keras on JAX: --jax-environment DIR" in printed
    assert list(found) == ["machine", "calls"]
    assert list(found["calls"]) == list(calls.CALLS)
    check(found["calls"])


def test_it_measures_steps_of_models(tmp_path):
    options = ("--only", "steps", "--epochs", "2", "--models", "mlp")
    printed, found = run(tmp_path / "times.json", *options)
    assert "A step of fit, 32 an execution, ms, medians" in printed
    assert list(found) == ["machine", "steps"]
    assert list(found["steps"]) == ["mlp"]
    check(found["steps"])


def test_the_table_compares_with_each_side_and_its_goal():
    by_side = {calls.STOCK: [4.0, 5.0, 6.0], calls.JAX: [1.0], calls.HERE: [2.0, 1.0, 3.0]}
    rows = [(calls.CALLS[name], by_side) for name in ("predict", "model(x)")]
    table = calls.table_of("Short calls", "call", rows)
    assert [list(column.cells) for column in table.columns[1:]] == [
        ["5.00", "5.00"],
        ["1.00", "1.00"],
        ["2.00 [green]✓ ≤ 2.5[/]", "2.00"],
        ["0.40", "0.40"],
        ["2.00", "2.00 [red]✗ ≤ 1.3[/]"],
    ]


def test_a_folder_that_is_no_environment(tmp_path):
    with pytest.raises(SystemExit, match=r"must be an environment that this has made.*no bin/pyt"):
        calls.make_jax_environment(tmp_path)


def test_an_environment_without_the_same_keras(tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 3.0.0\n")
    python.chmod(0o755)
    with pytest.raises(SystemExit, match=r"delete it to have it made again.*Keras '3\.0\.0'"):
        calls.make_jax_environment(tmp_path)

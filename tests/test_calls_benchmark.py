"""The benchmark of short calls, in as few turns as there can be."""

import json
import os
import subprocess
import sys

import calls
import pytest


def test_it_measures_every_call_on_every_side(tmp_path):
    file = tmp_path / "times.json"
    command = [sys.executable, calls.__file__, "--only", "calls", "--turns", "2", "--json", file]
    printed = subprocess.run(
        command, env=os.environ, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert "Without Keras on JAX: --jax-environment DIR" in printed
    times = json.loads(file.read_text())["calls"]
    assert list(times) == list(calls.CALLS)
    for by_side in times.values():
        assert list(by_side) == [calls.STOCK, calls.HERE]
        assert all(len(turns) == 2 and min(turns) > 0 for turns in by_side.values())


def test_the_table_compares_with_each_side_and_its_goal():
    by_side = {calls.STOCK: [4.0, 5.0, 6.0], calls.JAX: [1.0], calls.HERE: [2.0, 1.0, 3.0]}
    table = calls.calls_table({"predict": by_side, "model(x)": by_side})
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

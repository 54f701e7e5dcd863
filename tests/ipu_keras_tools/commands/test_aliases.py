"""Graphcore's names of commands: written on request, in nobody's way, and removed."""

import doctest
import json
import os
import shutil
import stat
import subprocess

import pytest

from ipu_keras_tools.commands import aliases
from ipu_keras_tools.main import main

NAMES = ["gc-info", "gc-inventory", "gc-monitor"]


def test_examples():
    assert doctest.testmod(aliases).failed == 0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder on a path that has no other commands of these names."""
    made = tmp_path / "with a space"
    made.mkdir()
    monkeypatch.setenv("PATH", os.pathsep.join([str(made), os.defpath]))
    return made


def call(name, *arguments):
    """What a command prints that is found on the path."""
    done = subprocess.run(
        [shutil.which(name), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_they_call_info(folder, capsys):
    assert main(["aliases", "--install", str(folder)]) == 0
    written = [str(folder / name) for name in NAMES]
    assert capsys.readouterr().out.splitlines() == [f"installed {path}" for path in written]
    assert sorted(map(str, folder.iterdir())) == written
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o755 for path in folder.iterdir())

    assert call("gc-info", "-l").startswith("Graphcore device listing:\n\n-+- Id:  [0], type: ")
    assert "remote buffers supported: 1\n" in call("gc-info", "-d", "0", "-I")
    (device,) = json.loads(call("gc-inventory", "-d", "30", "-j"))["devices"]
    assert device["attributes"]["number of IPUs"] == 16
    assert call("gc-monitor").startswith("An emulated machine of 16 IPUs\n")


def test_they_say_how_calls_ended(folder):
    main(["aliases", "--install", str(folder)])
    done = subprocess.run(
        [shutil.which("gc-info"), "-d", "99"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "ipu-keras info: error: there is no device 99" in done.stderr


def test_they_are_written_again_and_removed(folder, capsys):
    main(["aliases", "--install", str(folder)])
    (folder / "gc-info").write_text((folder / "gc-info").read_text() + "# of an older version\n")
    assert main(["aliases", "--install", str(folder)]) == 0
    assert "older version" not in (folder / "gc-info").read_text()
    capsys.readouterr()
    assert main(["aliases", "--remove", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "removed": [str(folder / name) for name in NAMES]
    }
    assert list(folder.iterdir()) == []
    assert main(["aliases", "--remove", str(folder)]) == 0
    assert capsys.readouterr().out == f"nothing to remove in {folder}\n"


@pytest.mark.parametrize("content", [b"#!/bin/sh\necho the real one\n", b"\x7fELF\xff\xfe"])
def test_a_file_of_others_stays(folder, capsys, content):
    other = folder / "gc-monitor"
    other.write_bytes(content)
    assert main(["aliases", "--install", str(folder)]) == 2
    assert f"nothing was written, as there is already {other}\n" in capsys.readouterr().err
    assert list(folder.iterdir()) == [other]
    main(["aliases", "--remove", str(folder)])
    assert other.read_bytes() == content


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("elsewhere")])
def test_what_is_no_file_stays(folder, capsys, make):
    make(folder / "gc-info")
    assert main(["aliases", "--install", str(folder)]) == 2
    assert f"there is already {folder / 'gc-info'}\n" in capsys.readouterr().err
    assert main(["aliases", "--remove", str(folder)]) == 0
    assert list(folder.iterdir()) == [folder / "gc-info"]


def test_a_command_elsewhere_on_the_path_is_not_shadowed(folder, tmp_path, monkeypatch, capsys):
    real = tmp_path / "sdk" / "gc-inventory"
    real.parent.mkdir()
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), str(real.parent)]))
    assert main(["aliases", "--install", str(folder)]) == 2
    assert f"there is already {real}\n" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path, capsys):
    assert main(["aliases", "--install", str(tmp_path / "bin")]) == 2
    assert f"{tmp_path / 'bin'} is no folder. Make it" in capsys.readouterr().err
    # A variable of the shell that is not set.
    assert main(["aliases", "--install", ""]) == 2
    assert "'' is no folder. Make it" in capsys.readouterr().err


def test_a_folder_in_which_nothing_can_be_written(capsys):
    assert main(["aliases", "--install", "/proc"]) == 2
    assert "error: /proc/gc-info cannot be changed: No such" in capsys.readouterr().err

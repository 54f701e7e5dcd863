"""What `poprun` starts, and what it tells the instances."""

import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ipu_keras_tools import poprun
from ipu_keras_tools.main import main as ipu_keras
from ipu_keras_tools.poprun import main


@pytest.fixture(autouse=True)
def no_flags(monkeypatch):
    for name in ("TF_POPLAR_FLAGS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)


def test_the_command_and_the_variables(capsys):
    options = ["--num-instances", "2", "--num-replicas", "4", "--ipus-per-replica", "2"]
    options += ["--mpi-local-args=--tag-output", "--executable-cache-path", "/cache"]
    assert main([*options, "--dry-run", "python", "train.py", "--epochs", "3"]) == 0
    words = shlex.split(capsys.readouterr().out)
    assert words[:7] == [
        "POPDIST_NUM_TOTAL_REPLICAS=4",
        "POPDIST_NUM_LOCAL_REPLICAS=2",
        "POPDIST_NUM_IPUS_PER_REPLICA=2",
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE=1",
        "TF_NUM_INTRAOP_THREADS=4",
        "TF_NUM_INTEROP_THREADS=4",
        "TF_POPLAR_FLAGS=--executable_cache_path=/cache",
    ]
    assert words[7].endswith("mpirun")
    assert words[8:13] == ["-n", "2", "-prepend-rank", sys.executable, "-I"]
    assert words[13].endswith("/instance.py")
    assert words[14:] == ["poprun", "all", "python", "train.py", "--epochs", "3"]


def test_launch_is_the_same_by_another_name(capfd, tmp_path):
    """A script that is not executable is run by this Python, in either."""
    script = tmp_path / "train.py"
    script.write_text("import os, sys; print(*sys.argv[1:]); sys.exit(int(os.environ['PMI_RANK']))")
    options = ["-n", "2", "--only-output-from-instance", "0"]
    assert ipu_keras(["launch", *options, str(script), "--epochs", "3"]) == 1
    said = capfd.readouterr()
    assert said.out == "--epochs 3\n"
    assert said.err == "ipu-keras launch: instance 1 has ended with code 1\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "say what to run, such as `ipu-keras launch --num-instances 2 python train.py`"),
        (["--json", "x"], "there is no JSON of this: what the instances print is their own"),
    ],
)
def test_refusals_of_launch(capsys, options, message):
    assert ipu_keras(["launch", *options]) == 2
    assert capsys.readouterr().err == f"ipu-keras launch: error: {message}\n"


@pytest.mark.parametrize(
    ("of_mpich", "expected"),
    [
        (True, ["-prepend-rank", "-verbose"]),
        (False, ["--oversubscribe", "--mca", "btl", "tcp,self", "--tag-output", "-verbose"]),
    ],
)
def test_the_words_of_the_launcher_that_is_there(monkeypatch, capsys, of_mpich, expected):
    monkeypatch.setattr(poprun, "_is_mpich", lambda mpirun: of_mpich)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    words = "--mpi-global-args=--mca btl tcp,self --tag-output -verbose"
    assert main([words, "--dry-run", "true"]) == 0
    command = shlex.split(capsys.readouterr().out)
    assert command[command.index("-n") : command.index(sys.executable)] == ["-n", "1", *expected]


def test_output_of_one_instance_only(capfd):
    options = ["--num-instances", "3", "--only-output-from-instance", "1"]
    assert main([*options, "sh", "-c", 'echo "rank $PMI_RANK"']) == 0
    assert capfd.readouterr().out == "rank 1\n"


def test_an_instance_that_fails_is_named(capfd):
    assert main(["--num-instances", "2", "sh", "-c", "exit $PMI_RANK"]) == 1
    assert capfd.readouterr().err == "poprun: instance 1 has ended with code 1\n"


def test_an_instance_that_is_killed_ends_the_others(capfd, tmp_path):
    """Not only what the launcher has started, but what that runs."""
    program = f'[ $PMI_RANK = 1 ] && kill -9 $$; echo $$ > "{tmp_path}/pid"; exec sleep 60'
    start = time.monotonic()
    assert main(["--num-instances", "2", "sh", "-c", program]) == 9
    assert time.monotonic() - start < 30
    assert "poprun: instance 1 was killed by signal 9\n" in capfd.readouterr().err
    left = tmp_path / "pid"
    while left.exists() and is_running(left.read_text().strip()):
        assert time.monotonic() - start < 30
        time.sleep(0.05)


def test_output_that_nobody_reads_ends_all(tmp_path):
    program = f'echo $$ > "{tmp_path}/$PMI_RANK"; while true; do echo line; sleep 0.01; done'
    with subprocess.Popen(
        [sys.executable, "-m", "ipu_keras_tools.poprun", "-n", "2", "sh", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        started.stdout.readline()
        started.stdout.close()
        said = started.stderr.read()
    assert said == "poprun: nobody reads the output any longer, so all ends\n"
    assert started.returncode == 128 + 13
    start = time.monotonic()
    while any(is_running(path.read_text().strip()) for path in tmp_path.iterdir()):
        assert time.monotonic() - start < 30
        time.sleep(0.05)


def test_interrupted(monkeypatch, capsys):
    def run(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(poprun, "launched", run)
    assert (main(["true"]), capsys.readouterr().err) == (130, "poprun: interrupted\n")


def is_running(process):
    """Whether a process is there, and has not ended without anybody asking how."""
    try:
        return "State:\tZ" not in Path("/proc", process, "status").read_text()
    except OSError:
        return False


def test_options_of_machines_are_named(capsys):
    main(["--vipu-partition", "p", "--offline-mode", "--dry-run", "python", "train.py"])
    assert capsys.readouterr().err.splitlines() == [
        "poprun: --vipu-partition means nothing on an emulated machine",
        "poprun: --offline-mode means nothing on an emulated machine",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num-instances", "2", "--num-replicas", "3", "x"], "must be a multiple of --num-inst"),
        (["--host", "other", "x"], "all instances run on this machine"),
        (["--num-instances", "2"], "say what to run"),
        (["--only-output-from-instance", "2", "-n", "2", "x"], "must be 0 to 1, as --num-inst"),
        (["--mpi-local-args", '"a', "x"], "split into words as by a shell. Received: '' and '\"a'"),
        (["--num-instances", "0", "x"], "must be a positive integer. Received: '0'"),
    ],
)
def test_refusals(capsys, arguments, message):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in " ".join(capsys.readouterr().err.split())

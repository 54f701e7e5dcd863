"""What `poprun` starts, and what it tells the instances."""

import pytest

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
    words = capsys.readouterr().out.split()
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
    assert " ".join(words[8:]) == "-n 2 --tag-output python train.py --epochs 3"


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
        (["--num-instances", "0", "x"], "must be a positive integer. Received: 0"),
    ],
)
def test_refusals(capsys, arguments, message):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in " ".join(capsys.readouterr().err.split())

"""The command `poprun`, which starts the instances of an application by `mpirun`.

`ipu-keras launch` is the same by another name.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ipu_keras_tools.option_values import positive, replicas
from ipu_keras_tools.results import Parser, UsageError, print_text

# Options that are about machines and partitions of IPUs, which an emulated machine does not have.
# Those of the first list take a value.
_WITH_VALUE = (
    *("--host-subnet", "--numa-aware", "--num-ilds", "--remove-partition", "--reset-partition"),
    *("--sync-type", "--topology", "--update-partition", "--vipu-cluster", "--vipu-partition"),
    *("--vipu-server-host", "--vipu-server-port", "--vipu-server-timeout"),
)
_SWITCHES = ("--offline-mode", "--synchronise-python-packages")

# What scripts tell Open MPI's `mpirun`, in the words of MPICH's; and what that one does not need,
# with the number of words that follow.
_MPICH_WORDS = {"--tag-output": "-prepend-rank", "-tag-output": "-prepend-rank"}
_OPEN_MPI_ONLY = {
    "--allow-run-as-root": 0,
    "--oversubscribe": 0,
    "--bind-to": 1,
    "--map-by": 1,
    "--mca": 2,
    "-mca": 2,
}

# What shells add to the number of the signal that has ended a command.
_KILLED = 128

# What runs an instance.
_INSTANCE = Path(__file__).with_name("instance.py")


def main(arguments: Sequence[str] | None = None) -> int:
    """Starts the instances, and waits for them.

    Args:
        arguments: The words after the command's name; `None` takes those of the process.

    Returns:
        The exit code of `mpirun`; 2 if the command cannot be understood or done, 130 if it was
        interrupted.
    """
    parser = Parser(
        prog="poprun",
        description="Starts the instances of an application on this machine: processes, each with "
        "its share of the replicas.",
        epilog="example: poprun --num-instances 2 --num-replicas 4 python train.py",
    )
    add_options(parser)
    try:
        return launched(parser.parse_args(arguments), "poprun")
    except UsageError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("poprun: interrupted", file=sys.stderr)
        return _KILLED + signal.SIGINT


def launched(given: argparse.Namespace, name: str) -> int:
    """Starts the instances that options ask for, and returns the exit code of `mpirun`.

    Args:
        given: Has what `add_options` adds.
        name: The command's, for what is said.

    Raises:
        UsageError: There is nothing to run or no `mpirun`, or replicas or hosts cannot be had.
    """
    for option in (*_WITH_VALUE, *_SWITCHES):
        if getattr(given, option.strip("-").replace("-", "_")):
            print(f"{name}: {option} means nothing on an emulated machine", file=sys.stderr)
    num_replicas = given.num_replicas or given.num_instances
    if num_replicas % given.num_instances:
        raise UsageError(
            "--num-replicas must be a multiple of --num-instances. "
            f"Received: {num_replicas} and {given.num_instances}"
        )
    if given.host is not None and given.host not in ("localhost", "127.0.0.1", os.uname().nodename):
        raise UsageError(
            "all instances run on this machine: other ones need a network and the same "
            f"environment. Received: --host {given.host}"
        )
    shown = given.only_output_from_instance
    if shown is not None and not 0 <= shown < given.num_instances:
        raise UsageError(
            f"--only-output-from-instance must be 0 to {given.num_instances - 1}, as "
            f"--num-instances says. Received: {shown}"
        )
    if not given.program:
        raise UsageError(f"say what to run, such as `{name} --num-instances 2 python train.py`")
    mpirun = _mpirun()
    if mpirun is None:
        raise UsageError('there is no `mpirun`. Install one with `pip install "ipu-keras[mpi]"`')
    command = _command(mpirun, given, name)
    environment = _environment(given, num_replicas)
    if given.dry_run:
        variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
        print_text(" ".join([*variables, shlex.join(command)]))
        return 0
    code = subprocess.run(command, env={**os.environ, **environment}, check=False).returncode
    if code == -signal.SIGPIPE:
        print(f"{name}: nobody reads the output any longer, so all ends", file=sys.stderr)
    return code if code >= 0 else _KILLED - code


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options, and last what is to be run."""
    parser.add_argument(
        "-n", "--num-instances", type=positive, default=1, metavar="N", help="processes"
    )
    parser.add_argument(
        "--num-replicas", type=replicas, metavar="N", help="of all instances; one in each"
    )
    parser.add_argument(
        "--ipus-per-replica", type=positive, default=1, metavar="N", help="IPUs of a replica"
    )
    parser.add_argument("--host", "--hosts", metavar="NAME", help="this machine")
    parser.add_argument("--tag-output", action="store_true", help="print the rank of each line")
    parser.add_argument(
        "--only-output-from-instance", type=int, metavar="RANK", help="drop what others print"
    )
    parser.add_argument("--mpi-local-args", default="", metavar="WORDS", help="words for `mpirun`")
    parser.add_argument("--mpi-global-args", default="", metavar="WORDS", help="words for `mpirun`")
    parser.add_argument("--executable-cache-path", metavar="FOLDER", help="for compiled programs")
    parser.add_argument("--dry-run", action="store_true", help="print the command")
    parser.add_argument("-v", action="count", help="accepted, and prints no more")
    for name in _WITH_VALUE:
        parser.add_argument(name, help=argparse.SUPPRESS)
    for name in _SWITCHES:
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("program", nargs=argparse.REMAINDER, help="what to run, and its arguments")


def _mpirun() -> str | None:
    """Returns the launcher that was installed with this Python, or the first one on the path."""
    beside = Path(sys.executable).parent / "mpirun"
    return str(beside) if beside.exists() else shutil.which("mpirun")


def _command(mpirun: str, given: argparse.Namespace, name: str) -> list[str]:
    try:
        words = [*shlex.split(given.mpi_global_args), *shlex.split(given.mpi_local_args)]
    except ValueError as error:
        raise UsageError(
            "--mpi-global-args and --mpi-local-args are split into words as by a shell. Received: "
            f"{given.mpi_global_args!r} and {given.mpi_local_args!r} ({error})"
        ) from error
    if given.tag_output:
        words.append("--tag-output")
    shown = given.only_output_from_instance
    instance = [sys.executable, "-I", str(_INSTANCE), name, "all" if shown is None else str(shown)]
    program = given.program
    if program[0].endswith(".py") and not os.access(program[0], os.X_OK):
        program = [sys.executable, *program]
    options = _of_mpich(words) if _is_mpich(mpirun) else _of_open_mpi(words)
    return [mpirun, "-n", str(given.num_instances), *options, *instance, *program]


def _is_mpich(mpirun: str) -> bool:
    said = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
    return "HYDRA" in said.stdout.upper()


def _of_mpich(words: Sequence[str]) -> list[str]:
    found, left = [], iter(words)
    for word in left:
        if word in _OPEN_MPI_ONLY:
            for _ in range(_OPEN_MPI_ONLY[word]):
                next(left, None)
        else:
            found.append(_MPICH_WORDS.get(word, word))
    return found


def _of_open_mpi(words: Sequence[str]) -> list[str]:
    """Adds what Open MPI wants to be told of more instances than cores, and of the user root."""
    needed = ["--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    return [*(word for word in needed if word not in words), *words]


def _environment(given: argparse.Namespace, num_replicas: int) -> Mapping[str, str]:
    """Returns the variables by which instances know what `poprun` was told."""
    found = {
        "POPDIST_NUM_TOTAL_REPLICAS": num_replicas,
        "POPDIST_NUM_LOCAL_REPLICAS": num_replicas // given.num_instances,
        "POPDIST_NUM_IPUS_PER_REPLICA": given.ipus_per_replica,
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": 1,
    }
    # MPI spins while it waits, so more threads than cores would wait for each other.
    threads = max((os.cpu_count() or 1) // given.num_instances, 1)
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        if name not in os.environ:
            found[name] = threads
    if given.executable_cache_path:
        flags = os.environ.get("TF_POPLAR_FLAGS", "")
        path = f"--executable_cache_path={given.executable_cache_path}"
        return {
            **{n: str(v) for n, v in found.items()},
            "TF_POPLAR_FLAGS": f"{flags} {path}".strip(),
        }
    return {name: str(value) for name, value in found.items()}


if __name__ == "__main__":
    sys.exit(main())

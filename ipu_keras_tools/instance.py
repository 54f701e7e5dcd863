"""What `poprun` and `ipu-keras launch` have `mpirun` start: one instance, and a word if it fails.

It is run by its path, as it has to be there at once, and in place of what users start: launchers
say neither which instance has failed nor, of all that run, that it was the first.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

_SET_PARENT_DEATH_SIGNAL = 1  # of `prctl`, in <linux/prctl.h>


def main(name: str, shown: str, program: list[str]) -> int:
    """Runs an instance, and returns its exit code.

    Args:
        name: The name of the command that has it started.
        shown: The number of the instance whose output is kept; `"all"` for any.
    """
    # The launchers of MPICH and Open MPI say the number in one of these.
    instance = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK", "0")
    output = None if shown in ("all", instance) else subprocess.DEVNULL
    library = ctypes.CDLL(None)

    def end_with_this_process() -> None:
        # Launchers kill what they have started, and nothing below it.
        library.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)

    try:
        # Instances talk to MPICH's launcher by a file that they inherit. It ends all of them when
        # an instance closes that early, so this process has it too until the failure is said.
        started = subprocess.Popen(
            program, stdout=output, close_fds=False, preexec_fn=end_with_this_process
        )
    except OSError as error:
        print(f"{name}: cannot start {program[0]!r}: {error.strerror}", file=sys.stderr)
        return 127
    while started.poll() is None:
        with contextlib.suppress(KeyboardInterrupt):  # which the instance has as well
            started.wait()
    code = started.returncode
    if code > 0:
        print(f"{name}: instance {instance} has ended with code {code}", file=sys.stderr)
    elif code < 0:
        print(f"{name}: instance {instance} was killed by signal {-code}", file=sys.stderr)
        # So that the launcher knows, and ends the others.
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

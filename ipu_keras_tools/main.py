"""The command `ipu-keras`.

Commands are thin: each has the arguments of what it calls, and a module in `commands/` that is
imported when it runs. Until then nothing imports TensorFlow, so that help and refusals are there
at once.
"""

import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from types import ModuleType

from ipu_keras_tools.arguments import parser
from ipu_keras_tools.light_rooms import without_tensorflow
from ipu_keras_tools.refusals import refuse
from ipu_keras_tools.results import UsageError, printable_lines

# TensorFlow's variable of the environment that leaves out notes and warnings of its own.
_FEW_MESSAGES = ("TF_CPP_MIN_LOG_LEVEL", "2")

# The file of standard error, which TensorFlow writes to.
_ERRORS = 2

# Commands that need only what knows nothing of TensorFlow.
_LIGHT = ("aliases", "diff", "info", "options")

# The command of which all that a script raises is the script's own.
_RUN = "ipu-keras run"

# What shells report of a command that Ctrl-C has ended.
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the command line says.

    Args:
        arguments: The words after the command's name; `None` takes those of the process.

    Returns:
        0 if all is well, 1 if the answer is no (it does not fit, has grown, will not run), 2 if
        the command cannot be understood or done, 130 if it was interrupted.
    """
    if sys.stderr is None:
        _forget_messages()
    command = "ipu-keras"
    try:
        given = parser().parse_args(arguments)
        if given.command is None:
            parser().print_help()
            return 0
        command = f"{command} {given.command}"
        refuse(given)
        with without_tensorflow() if given.command in _LIGHT else nullcontext():
            return _command(given.module).run(given)
    except UsageError as error:
        print(f"{command}: error: {printable_lines(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if command == _RUN:
            raise
        print(f"{command}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except Exception:
        if command == _RUN:
            raise
        # Python's exit code for it is 1, which would say that the answer is no.
        traceback.print_exc()
        return 2


def _forget_messages() -> None:
    """Has a process without standard error leave out messages, which `print` would put out."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != _ERRORS:
        os.dup2(nowhere, _ERRORS)
        os.close(nowhere)
    sys.stderr = os.fdopen(_ERRORS, "w", closefd=False)


def _command(name: str) -> ModuleType:
    """Imports a command, without what TensorFlow says about the processor meanwhile."""
    module = f"ipu_keras_tools.commands.{name}"
    if name in ("run", "launch"):  # what a script's process writes is the script's own
        return importlib.import_module(module)
    os.environ.setdefault(*_FEW_MESSAGES)
    # TensorFlow writes some of it whatever the variable says, before its log is set up.
    with tempfile.TemporaryFile() as written:
        kept = os.dup(_ERRORS)
        os.dup2(written.fileno(), _ERRORS)
        try:
            return importlib.import_module(module)
        except KeyboardInterrupt:
            raise
        except BaseException:
            written.seek(0)
            os.write(kept, written.read())
            raise
        finally:
            os.dup2(kept, _ERRORS)
            os.close(kept)

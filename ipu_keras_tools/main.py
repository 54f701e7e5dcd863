"""The command `ipu-keras`.

Commands are thin: each has the arguments of what it calls, and a module in `commands/` that is
imported when it runs. Until then nothing imports TensorFlow, so that help is there at once.
"""

import importlib
import sys
from collections.abc import Sequence

from ipu_keras_tools.arguments import parser
from ipu_keras_tools.results import UsageError, printable_lines, written_out


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the command line says.

    Args:
        arguments: The words after the command's name; `None` takes those of the process.

    Returns:
        0 if all is well, 1 if the answer is no (it does not fit, has grown, will not run), 2 if
        the command cannot be understood or done.
    """
    command, given = "ipu-keras", None
    try:
        with written_out():  # the text of --help, after which Python ends unless nobody reads it
            given = parser().parse_args(arguments)
        if given is None:
            return 0
        command = f"{command} {given.command}"
        module = importlib.import_module(f"ipu_keras_tools.commands.{given.module}")
        return module.run(given)
    except UsageError as error:
        print(f"{command}: error: {printable_lines(str(error))}", file=sys.stderr)
        return 2

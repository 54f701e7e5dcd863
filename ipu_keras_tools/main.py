"""The command `ipu-keras`.

Commands are thin: each has the arguments of what it calls, and a module in `commands/` that is
imported when it runs. Until then nothing imports TensorFlow, so that help is there at once.
"""

import importlib
import sys
from collections.abc import Sequence

from ipu_keras_tools.arguments import parser
from ipu_keras_tools.results import UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the command line says.

    Args:
        arguments: Without the name of the command; by default those of the process.

    Returns:
        0 if all is well, 1 if the answer is no (it does not fit, has grown, will not run), 2 if
        the command cannot be understood or done.
    """
    commands = parser()
    given = commands.parse_args(arguments)
    module = importlib.import_module(f"ipu_keras_tools.commands.{given.module}")
    try:
        return module.run(given)
    except UsageError as error:
        print(f"ipu-keras {given.command}: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Who reads the output, such as `head`, has enough of it.
        sys.stderr.close()
        return 0

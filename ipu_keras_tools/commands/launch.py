"""The command `ipu-keras launch`, which is `poprun`."""

import argparse

from ipu_keras_tools.poprun import launched
from ipu_keras_tools.results import UsageError


def run(given: argparse.Namespace) -> int:
    """Starts the instances of an application, and returns the exit code of `mpirun`."""
    if given.json:
        raise UsageError("there is no JSON of this: what the instances print is their own")
    return launched(given, "ipu-keras launch")

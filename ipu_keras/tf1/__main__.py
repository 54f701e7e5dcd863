"""The command `python -m ipu_keras.tf1`."""

import argparse
import sys
from pathlib import Path

import tensorflow as tf

from ipu_keras.tf1.imports import install
from ipu_keras.tf1.scripts import run_module, run_script

_DESCRIPTION = """Runs a script written for TensorFlow 1 as TensorFlow 1 would: graphs and sessions
instead of eager execution, and `import tensorflow` gives the names of `tensorflow.compat.v1`,
with `tf.layers` and `tf.nn.rnn_cell`. What the script imports of its own gets these too;
installed libraries get TensorFlow 2."""


def main() -> None:
    """Runs what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m ipu_keras.tf1",
        description=_DESCRIPTION,
        usage="%(prog)s [-h] (script | -m module) [argument ...]",
    )
    parser.add_argument("-m", dest="module", metavar="module", help="a module instead of a script")
    parser.add_argument("script", nargs="?", help=argparse.SUPPRESS)
    # Options after the script or the module belong to it, so argparse must not see them.
    own = 3 if sys.argv[1:2] == ["-m"] else 2
    given, rest = parser.parse_args(sys.argv[1:own]), sys.argv[own:]
    script = given.script
    if script is None and given.module is None:
        parser.error("give the script that is to run, or -m and the name of a module")
    if script is not None and not Path(script).is_file():
        parser.error(f"there is no script {script!r}")

    tf.compat.v1.disable_v2_behavior()
    install()
    if script is None:
        sys.argv = [given.module, *rest]
        run_module(given.module)
    else:
        sys.argv = [script, *rest]
        run_script(script)


if __name__ == "__main__":
    main()

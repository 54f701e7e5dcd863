"""The command `python -m ipu_keras`, which is `ipu-keras`."""

import sys

from ipu_keras_tools.main import main

if __name__ == "__main__":
    sys.exit(main())

"""The names that IPU documents have at the top of a module: those of `documented_names.txt`."""

import functools
from collections.abc import Mapping
from importlib import resources

from ipu_keras._aliases import real_name


@functools.cache
def documented_by_real_name() -> Mapping[str, str]:
    """Returns documented names by the names in this package, modules included; the shortest ones.

    Example:

    >>> documented_by_real_name()["ipu_keras.pipelining_ops.pipeline"]
    'tensorflow.python.ipu.pipelining_ops.pipeline'
    """
    found: dict[str, str] = {}
    for name in sorted(documented_names(), key=len, reverse=True):
        while (real := real_name(name)) is not None:
            found[real] = name
            name = name.rpartition(".")[0]
    return found


def documented_names() -> list[str]:
    return (resources.files("ipu_keras") / "documented_names.txt").read_text("utf-8").split()

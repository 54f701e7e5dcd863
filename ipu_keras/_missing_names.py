"""Answers for documented names that this version lacks, whichever way they are asked for.

`documented_names.txt` has all names that are documented at the top of a module. Which of them
exist is nowhere written down: they are looked for here after nothing else was found.
"""

import functools
import sys
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from ipu_keras._aliases import real_name


class MissingNameError(AttributeError):
    """A documented name was read from a module, and this version does not have it."""


class MissingNameFinder(MetaPathFinder):
    """Refuses the import of documented names that were not found.

    It must stand behind all other finders, so that it is asked for nothing that exists.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(("ipu_keras.", "ipu_addons.")):
            return None
        documented = documented_by_real_name().get(name)
        if documented is None:
            return None
        # With the real name, `from package import name` would drop this message.
        raise ModuleNotFoundError(_explanation(documented), name=documented)


def missing_attribute(module: str, name: str) -> AttributeError:
    """Returns the error for a name that a module does not have, as its `__getattr__` raises it.

    `from module import name` shows it only if the module has a `__path__`: otherwise Python says
    in its own words that the name cannot be imported, and no finder is asked.

    Args:
        module: The real name of the module, not an alias.
    """
    documented = documented_by_real_name().get(f"{module}.{name}")
    if documented is None:
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    return MissingNameError(_explanation(documented))


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


def install() -> None:
    """Makes imports of missing names be refused from now on; may be repeated."""
    # By the module's name, as reloading it makes another class.
    if not any(type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.append(MissingNameFinder())


def _explanation(documented: str) -> str:
    return (
        f"{documented!r} is documented, and this version of ipu-keras does not have it yet. "
        "README.md of ipu-keras has a table of what exists, 'What works today', and below it, "
        "'Not yet', one of all names that do not."
    )

"""Which documented names there are not, and the README's table of them.

`python tests/missing_names.py` prints the table.
"""

import importlib
from collections import defaultdict
from collections.abc import Iterable

from ipu_keras._missing_names import documented_names


def exists(name: str) -> bool:
    """Whether a dotted name is that of a module, or of something in one."""
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
        return True
    except ModuleNotFoundError:
        pass
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError:
        return False


def missing_names() -> list[str]:
    """The documented names that there are not."""
    return [name for name in documented_names() if not exists(name)]


def table(missing: Iterable[str]) -> str:
    """Names by their modules, in Markdown."""
    by_module = defaultdict(list)
    for name in missing:
        # Each operation has two homes; one is enough to find it by.
        module, _, attribute = name.replace("tensorflow.python.ipu.ops.", "ipu.").rpartition(".")
        by_module[module.replace("tensorflow.python.ipu", "ipu")].append(attribute)
    rows = [
        f"| `{module}` | {', '.join(f'`{name}`' for name in sorted(set(names)))} |"
        for module, names in sorted(by_module.items())
    ]
    return "\n".join(["| module | not yet |", "|---|---|", *rows])


if __name__ == "__main__":
    print(table(missing_names()))

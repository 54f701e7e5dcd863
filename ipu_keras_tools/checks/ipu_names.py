"""Names of the IPU documents: which of them a script uses, and whether all of it has an effect."""

from collections import defaultdict
from collections.abc import Iterable

from ipu_keras._aliases import real_name
from ipu_keras._documented_names import documented_by_real_name
from ipu_keras.config import IPUConfig
from ipu_keras_tools.checks.findings import PARTLY, WORKS, NameUse

_OPTION = "IPUConfig."


class UsedNames:
    """The names that a script uses, collected while it is read."""

    def __init__(self) -> None:
        self._lines: defaultdict[str, set[int]] = defaultdict(set)

    def use(self, name: str, line: int) -> None:
        """Notes a name, as the script has it or as it is here, if documents have it."""
        documented = documented_name(name)
        if documented is not None:
            self._lines[documented].add(line)

    def use_option(self, path: str, line: int) -> None:
        """Notes the use of an option of `IPUConfig` that exists."""
        self._lines[f"{_OPTION}{path}"].add(line)

    def uses(self) -> tuple[NameUse, ...]:
        """Returns all names, in the order of letters."""
        return tuple(self._use(name, lines) for name, lines in sorted(self._lines.items()))

    def _use(self, name: str, lines: Iterable[int]) -> NameUse:
        where = tuple(sorted(lines))
        option = IPUConfig.TABLE.get(name.removeprefix(_OPTION))
        if name.startswith(_OPTION) and option is not None and option.effect is None:
            why = f"stored and checked, without an effect: {option.why_idle}"
            return NameUse(name, where, PARTLY, why)
        return NameUse(name, where, WORKS)


def documented_name(name: str) -> str | None:
    """Returns the documented name of something; `None` if it has none.

    Args:
        name: A dotted name, of this package or as scripts import it.

    Example:

    >>> documented_name("ipu_keras.config.IPUConfig")
    'tensorflow.python.ipu.config.IPUConfig'
    """
    names = documented_by_real_name()
    return names.get(real_name(name) or name)

"""Names of the IPU documents: which a script uses, and whether they are here."""

from collections import defaultdict
from collections.abc import Iterable

from ipu_keras._aliases import real_name
from ipu_keras._missing_names import documented_by_real_name
from ipu_keras.config import IPUConfig
from ipu_keras_tools.checks.findings import ABSENT, PARTLY, WORKS, NameUse

_OPTION = "IPUConfig."


class UsedNames:
    """The names that a script uses, as they are met."""

    def __init__(self) -> None:
        self._lines: defaultdict[str, set[int]] = defaultdict(set)
        self._absent: dict[str, str] = {}

    def use(self, name: str, line: int) -> None:
        """Notes a name, if it is one of the documents.

        Args:
            name: With its module, as the script has it or as it is here.
            line: Where.
        """
        documented = documented_name(name)
        if documented is not None:
            self._lines[documented].add(line)

    def use_option(self, path: str, line: int) -> None:
        """Notes an option of `IPUConfig` that there is.

        Args:
            path: Of the option.
            line: Where.
        """
        self._lines[f"{_OPTION}{path}"].add(line)

    def miss(self, name: str, line: int, said: str) -> None:
        """Notes a documented name that is not here.

        Args:
            name: As of `use`.
            line: Where.
            said: By the error.
        """
        documented = documented_name(name) or name
        self._lines[documented].add(line)
        self._absent[documented] = said

    def uses(self) -> tuple[NameUse, ...]:
        """All names, in the order of letters."""
        return tuple(self._use(name, lines) for name, lines in sorted(self._lines.items()))

    def _use(self, name: str, lines: Iterable[int]) -> NameUse:
        where = tuple(sorted(lines))
        if name in self._absent:
            return NameUse(name, where, ABSENT, self._absent[name])
        option = IPUConfig.TABLE.get(name.removeprefix(_OPTION))
        if name.startswith(_OPTION) and option is not None and option.effect is None:
            why = f"stored and checked, without an effect: {option.why_idle}"
            return NameUse(name, where, PARTLY, why)
        return NameUse(name, where, WORKS)


def documented_name(name: str) -> str | None:
    """The documented name of something; `None` if it has none.

    Args:
        name: A dotted name, of this package or as scripts import it.

    Example:

    >>> documented_name("ipu_keras.config.IPUConfig")
    'tensorflow.python.ipu.config.IPUConfig'
    """
    names = documented_by_real_name()
    return names.get(real_name(name) or name)

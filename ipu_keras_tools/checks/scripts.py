"""Scripts, with the modules of their own that they import from beside them."""

import builtins
from contextlib import suppress
from pathlib import Path

from ipu_keras.store.atomic_files import read_whole
from ipu_keras.tf1.imports import imports_of_scripts
from ipu_keras_tools.checks.findings import Findings, Problem
from ipu_keras_tools.checks.known_values import UserModule
from ipu_keras_tools.checks.libraries import is_of_library
from ipu_keras_tools.checks.parsing import MOST_BYTES, parsed
from ipu_keras_tools.checks.reading import Reader, findings_in, followed
from ipu_keras_tools.checks.script_scopes import Notes, Scope, SharedByScripts


def _problem_of(error: SyntaxError) -> Problem:
    return Problem(error.lineno or 1, error.offset or 1, type(error).__name__, error.msg)


class Scripts:
    """Scripts that are read, each once, however many others import it."""

    def __init__(self, *, is_tensorflow_1: bool = False):
        surroundings = SharedByScripts()
        if is_tensorflow_1:
            importing = imports_of_scripts(builtins.__import__)
            surroundings = SharedByScripts(
                lambda name: importing(name, fromlist=("",)), is_tensorflow_1=True
            )
        self._surroundings = surroundings
        # By real path, so that links and relative names do not have a script read twice: the path
        # that users know, with what is found.
        self._found: dict[Path, tuple[str, Notes | SyntaxError]] = {}
        self._readers: dict[Path, Reader] = {}
        self._named: dict[tuple[Path, str], UserModule | None] = {}

    def read(self, path: Path, source: bytes) -> None:
        """Reads a script, and the modules beside it that it imports."""
        real = path.resolve()
        if real not in self._found:
            followed(lambda: self._read(path, source, path.parent))
        _, found = self._found[real]
        if isinstance(found, SyntaxError):
            raise found

    def findings(self) -> list[Findings]:
        """Returns what was found in all scripts and modules, in the order of their paths."""
        followed(self._read_rest)
        found = []
        for path, notes in sorted(self._found.values(), key=lambda item: item[0]):
            if isinstance(notes, Notes):
                found.append(findings_in(path, notes))
            else:
                found.append(Findings(path, (_problem_of(notes),), (), ()))
        return found

    def _read_rest(self) -> None:
        # Functions import modules as well, which adds readers while the loop runs.
        done = 0
        while done < len(self._readers):
            [*self._readers.values()][done].read_rest()
            done += 1

    def _read(self, path: Path, source: bytes, root: Path) -> UserModule | None:
        real = path.resolve()
        notes = Notes(self._surroundings)
        self._found[real] = str(path), notes

        def own_module(name: str, level: int) -> UserModule | None:
            if level > len(path.parents) or (not level and is_of_library(name)):
                return None
            return self._module(path.parents[level - 1] if level else root, name, root)

        reader = Reader(notes, own_module)
        # Known before the script is read: modules may import each other in a circle, and then get
        # what is known by then, as in Python.
        self._readers[real] = reader
        try:
            reader.read_script(parsed(source, str(path)))
        except SyntaxError as error:
            # A module that is no Python fails when it is imported, so it is a finding and not
            # an end.
            self._found[real] = str(path), error
        return reader.module

    def _module(self, folder: Path, name: str, root: Path) -> UserModule | None:
        """Returns the module of a name in a folder; `None` if it has none."""
        key = folder, name
        if key not in self._named:
            self._named[key] = self._found_module(folder, name, root)
        return self._named[key]

    def _found_module(self, folder: Path, name: str, root: Path) -> UserModule | None:
        *above, last = name.split(".")
        place = folder.joinpath(*above, last)
        # A folder may be a package without an `__init__.py`.
        found = UserModule(Scope()) if name and place.is_dir() else None
        for path in (place / "__init__.py", place.parent / f"{last}.py"):
            reader = self._readers.get(path.resolve())
            if reader is not None:
                found = reader.module
                break
            with suppress(OSError):
                found = self._read(path, read_whole(path, MOST_BYTES), root)
                break
        outer = self._module(folder, ".".join(above), root) if above and found else None
        if outer is not None:
            outer.scope.set(last, found)
        return found

"""Keeps what modelling programs gave, in memory and in a directory for later runs.

Only the modelled side of an executable is kept; the code that XLA made for the host cannot be
taken out of TensorFlow. Entries are found by the digest of everything that they follow from, so
none is ever out of date.
"""

import functools
import hashlib
import json
import logging
import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from ipu_keras.store.atomic_files import (
    make_folder,
    read_whole,
    replace_atomically,
    warns_if_it_fails,
)
from ipu_keras.store.canonical_json import digest, from_json, to_json
from ipu_keras.store.file_locks import file_lock

T = TypeVar("T")

_LOGGER = logging.getLogger("ipu_keras")

# Raised when files with the last version in their header cannot be read any more.
SCHEMA_VERSION = 1

_FORMAT = "ipu_keras executable"
SUFFIX = ".ipu_executable.json"

# The code that entries follow from: a change in any of these files must give other keys.
CODE = (
    "cost",
    "internals/forms.py",
    "internals/tensorflow",
    "ir",
    "machine/system.py",
    "machine/target.py",
    "machine/world.py",
    "program",
    "settings",
    "store/canonical_json.py",
    "tracing",
)

# The graph and the model of ResNet-50 take 12 MB each.
_MOST_IN_MEMORY = 16

# Limit of a file, some forty times as much.
_MOST_BYTES = 2**29


class ExecutableCache:
    """Keeps values by the digest of what they follow from.

    Memory has the values used last, a directory all of them. Two threads or processes that ask
    for the same value make it once: the second waits.

    Example:

    >>> cache = ExecutableCache()
    >>> [cache.find_or_build("key", str, build) for build in (lambda: "made", lambda: "again")]
    ['made', 'made']
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._values: OrderedDict[str, Any] = OrderedDict()

    def find_or_build(
        self,
        key: str,
        kind: type[T],
        build: Callable[[], T],
        directory: Path | None = None,
        check: Callable[[T], None] | None = None,
    ) -> T:
        """Returns the value of a key, which is built if it is not there.

        Args:
            kind: The type of the value; `canonical_json` can write and read it.
            directory: Where its file is looked for, and written if it is missing;
                `None` for memory only. It is made if it does not exist. A file
                that is damaged or has another key is replaced, with a warning; a
                directory that cannot be used is left alone, with a warning.
            check: Raises an error for a value of a file that `build` could not have made;
                the file is then replaced like a damaged one.
        """
        with self._lock:
            if key not in self._values:
                self._values[key] = self._from_directory(key, kind, build, directory, check)
            elif directory is not None:
                export(directory, key, self._values[key])
            self._values.move_to_end(key)
            while len(self._values) > _MOST_IN_MEMORY:
                self._values.popitem(last=False)
            return self._values[key]

    def _from_directory(
        self,
        key: str,
        kind: type[T],
        build: Callable[[], T],
        directory: Path | None,
        check: Callable[[T], None] | None,
    ) -> T:
        if directory is None:
            return _made(kind, build)
        path = path_of(directory, key)
        lock = _locked(path)
        if lock is None:
            return _made(kind, build)
        with lock:
            value = _read(path, key, kind, check)
            if value is None:
                value = _made(kind, build)
                _write(path, key, value)
        return value


def _made(kind: type[T], build: Callable[[], T]) -> T:
    value = build()
    _LOGGER.debug("Made a %s that no cache had.", kind.__name__)
    return value


def content_key(*content: Any) -> str:
    """Returns the digest of what a value follows from, besides the code that makes it."""
    return digest(to_json(content))


def path_of(directory: Path, key: str) -> Path:
    """Returns the file of a key in a directory, for values of the present code."""
    return directory / f"{digest(_code_digest() + key)}{SUFFIX}"


def export(directory: Path, key: str, value: Any) -> None:
    """Writes the file of a key, unless it is there, or warns if the directory cannot be used."""
    path = path_of(directory, key)
    # Unlike `Path.is_file`, this raises nothing where no file can be.
    if os.path.isfile(path):
        return
    lock = _locked(path)
    if lock is not None:
        with lock:
            _write(path, key, value)


@functools.cache
def _code_digest() -> str:
    """Digests the sources that values follow from, so that any change gives other files."""
    package = resources.files("ipu_keras")
    return digest_of_sources(package / entry for entry in CODE)


def digest_of_sources(entries: Iterable[Traversable]) -> str:
    """Returns the digest of Python modules, given as files and folders, by names and texts."""
    sources = hashlib.sha256()
    for name, text in sorted(_sources(entries)):
        sources.update(f"{name}\0{len(text)}\0".encode() + text)
    return sources.hexdigest()


def _sources(entries: Iterable[Traversable], folder: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in entries:
        name = f"{folder}{entry.name}"
        if entry.is_dir():
            yield from _sources(entry.iterdir(), f"{name}/")
        elif name.endswith(".py"):
            yield name, entry.read_bytes()


def _locked(path: Path) -> ExitStack | None:
    """Locks a file, for which other processes wait; returns `None` if it cannot be locked."""
    with warns_if_it_fails(
        f"The directory {str(path.parent)!r} cannot be used for executables; "
        "--executable_cache_path in TF_POPLAR_FLAGS, or `IPUConfig.serialization_output_folder`, "
        "can name another one"
    ):
        make_folder(path.parent)
        held = ExitStack()
        held.enter_context(file_lock(path.with_name(f"{path.name}.lock")))
        return held
    return None


def _read(
    path: Path, key: str, kind: type[T], check: Callable[[T], None] | None = None
) -> T | None:
    """Returns the value in a file; `None` if there is none, or it belongs to another key."""
    try:
        text = read_whole(path, _MOST_BYTES).decode()
        header, _, content, _, _ = text.split("\n")
        if json.loads(header.removesuffix(",") + "}") != _header(key, content):
            raise ValueError("its header is not that of this content and key")
        value = from_json(kind, content)
        if check is not None:
            check(value)
        return value
    except FileNotFoundError:
        return None
    except Exception as error:  # of whatever somebody may have put there
        warnings.warn(
            f"The file {str(path)!r} is ignored and replaced: it holds no such executable. "
            f"Received: {error}",
            stacklevel=2,
        )
        return None


def _write(path: Path, key: str, value: Any) -> None:
    """Writes a file in one piece: readers see all of it, or what was there before."""
    content = to_json(value)
    header = to_json(_header(key, content)).removesuffix("}")
    with warns_if_it_fails(f"The file {str(path)!r} could not be written"):
        replace_atomically(path, f'{header},\n"content":\n{content}\n}}\n'.encode())


def _header(key: str, content: str) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "schema": SCHEMA_VERSION,
        "key": key,
        "checksum": digest(content),
    }

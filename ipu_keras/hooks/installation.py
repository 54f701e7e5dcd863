"""Replaces attributes of TensorFlow and Keras, once and so that it can be undone."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# The attribute of a replacement that holds its `Installed`. `functools.wraps` copies it to the
# wrappers that other libraries put around the replacement, so that it is found below them.
# `__wrapped__` would not do: every wrapper has it, and some of Keras's own functions.
_MARK = "_ipu_installed"

_INHERITED = object()


@dataclass(frozen=True)
class Installed:
    """A replacement that is in place, and what each owner had in its own `__dict__` before."""

    owners: tuple[Any, ...]
    name: str
    originals: tuple[Any, ...]
    replacement: Any


def install(
    owner: Any, name: str, wrapper: Callable[[Any], Any], *, also: Sequence[Any] = ()
) -> None:
    """Replaces an attribute of a module or a class, unless that was done before.

    Wrappers that other libraries have put around the attribute, before or since, stay. The
    replacement, which `wrapper` makes of it, is made to look like it, and is also given to
    further modules that offer the same object by that name.

    Example:

    >>> import types
    >>> module = types.SimpleNamespace(double=lambda x: 2 * x)
    >>> for _ in range(2):
    ...     install(module, "double", lambda original: lambda x: original(x) + 1)
    >>> module.double(5)
    11
    >>> uninstall(module, "double")
    >>> module.double(5)
    10
    """
    if installed(owner, name) is not None:
        return
    original = getattr(owner, name)
    replacement = wrapper(original)
    if callable(original):
        functools.update_wrapper(replacement, original)
    owners = (owner, *also)
    originals = tuple(vars(one).get(name, _INHERITED) for one in owners)
    setattr(replacement, _MARK, Installed(owners, name, originals, replacement))
    for one, before in zip(owners, originals, strict=True):
        # Python makes `__new__` a static method only where a class is defined.
        static = isinstance(before, staticmethod)
        setattr(one, name, staticmethod(replacement) if static else replacement)


def installed(owner: Any, name: str) -> Installed | None:
    """Returns what `install` put in place of an attribute, or `None`."""
    found = getattr(getattr(owner, name), _MARK, None)
    # A subclass finds the mark of its base, and a module that of a function it imported from
    # elsewhere.
    if not isinstance(found, Installed) or found.name != name:
        return None
    return found if any(one is owner for one in found.owners) else None


def uninstall(owner: Any, name: str) -> None:
    """Puts back what was there before, wherever `install` replaced it; else does nothing.

    A replacement that another library has wrapped since stays, as its wrapper would go too.
    """
    found = installed(owner, name)
    if found is None:
        return
    for one, before in zip(found.owners, found.originals, strict=True):
        if getattr(one, name) is not found.replacement:
            continue
        if before is _INHERITED:
            delattr(one, name)
        else:
            setattr(one, name, before)

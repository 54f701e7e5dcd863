"""Private names of other libraries, and the forms of them that the package relies on.

A library may change a private name in any version. A `PrivateName` is looked up and compared
with its form when it is used, so that a changed one says what has changed, and stops only those
who use it. The folders beside this file have the names, one folder for each library.
"""

import dis
import importlib
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, MappingProxyType, ModuleType
from typing import Any

_NO_MEMBERS: Mapping[str, "Form"] = MappingProxyType({})


class FormError(RuntimeError):
    """Says that a private name does not have the form that the package relies on."""


class Form(ABC):
    """What the package relies on in an object. Its text says what is expected."""

    @abstractmethod
    def mismatch(self, found: Any) -> str | None:
        """Says in a few words what an object is instead; `None` if it has this form."""


class Function(Form):
    """A function, or another object that can be called.

    Args:
        *positional: The first parameters, which are given by position; `self` too for a method
            that is looked up in its class.
        keywords: Parameters that are given by name. Any further parameter must have a default.
    """

    def __init__(self, *positional: str, keywords: Iterable[str] = ()):
        self._positional = positional
        self._keywords = tuple(keywords)

    def __str__(self) -> str:
        given = (*self._positional, *(f"{name}=" for name in self._keywords))
        return f"a function that is called with ({', '.join(given)})"

    def mismatch(self, found: Any) -> str | None:
        if not callable(found):
            return _kind(found)
        try:
            signature = inspect.signature(found)
        except (TypeError, ValueError):
            return "a function whose parameters cannot be known"
        return None if self._fits(signature) else f"a function of {_plain(signature)}"

    def _fits(self, signature: inspect.Signature) -> bool:
        parameters = signature.parameters.values()
        placed = [item for item in parameters if item.kind in _BY_POSITION]
        if tuple(item.name for item in placed[: len(self._positional)]) != self._positional:
            return False
        try:
            signature.bind(*self._positional, **dict.fromkeys(self._keywords))
        except TypeError:
            return False
        return True


class Compiled(Form):
    """A function of a compiled module, whose parameters cannot be inspected."""

    def __str__(self) -> str:
        return "a compiled function"

    def mismatch(self, found: Any) -> str | None:
        return None if callable(found) else _kind(found)


class Class(Form):
    """A class with certain attributes and methods.

    Args:
        *attributes: Names that the class must have, whatever they are.
        members: Forms of what the class has, such as of its methods.
        assigned: Attributes of instances, which a method of the class or of a base must assign.
    """

    def __init__(
        self,
        *attributes: str,
        members: Mapping[str, Form] = _NO_MEMBERS,
        assigned: Iterable[str] = (),
    ):
        self._attributes = attributes
        self._members = members
        self._assigned = tuple(assigned)

    def __str__(self) -> str:
        return _described(
            "a class",
            *([f"with {', '.join(self._attributes)}"] if self._attributes else []),
            *(f"whose {name} is {form}" for name, form in self._members.items()),
            *([f"that assigns {', '.join(self._assigned)}"] if self._assigned else []),
        )

    def mismatch(self, found: Any) -> str | None:
        if not inspect.isclass(found):
            return _kind(found)
        codes = _codes(found) if self._assigned else []
        missing = [
            name for name in self._assigned if not any(_stores(code, name) for code in codes)
        ]
        return _joined(
            "a class",
            *_members_mismatch(found, self._attributes, self._members),
            *([f"that does not assign {', '.join(missing)}"] if missing else []),
        )


class Module(Form):
    """A module, with the forms of what it has."""

    def __init__(self, **members: Form):
        self._members = members

    def __str__(self) -> str:
        return _described(
            "a module", *(f"whose {name} is {form}" for name, form in self._members.items())
        )

    def mismatch(self, found: Any) -> str | None:
        if not isinstance(found, ModuleType):
            return _kind(found)
        return _joined("a module", *_members_mismatch(found, (), self._members))


class InstanceOf(Form):
    """An object of a given type that is neither a function nor a class."""

    def __init__(self, kind: type):
        self._kind = kind

    def __str__(self) -> str:
        return f"a value of type {self._kind.__name__}"

    def mismatch(self, found: Any) -> str | None:
        return None if isinstance(found, self._kind) else _kind(found)


class PrivateName:
    """A private name of a library, and its form.

    Args:
        module: The module that has it, whose first part is the library.
        name: The name in the module; dots lead to attributes of what is there.

    Example:

    >>> split = PrivateName("textwrap", "TextWrapper._split", Function("self", "text"))
    >>> split.get().__name__
    '_split'
    """

    def __init__(self, module: str, name: str, form: Form):
        self.path = f"{module}.{name}"
        self.form = form
        self.module = module
        self._parts = name.split(".")
        # The object that was compared last: comparing reads byte code, and the same object is
        # found next time, unless somebody has replaced it.
        self._fitting: Any = None

    def get(self) -> Any:
        """Returns what has this name now.

        A `FormError` says that there is nothing, or something of another form.
        """
        # `import_module` takes far longer than this look-up, and some names are asked for at
        # every operation of a graph.
        found: Any = None if self._fitting is None else sys.modules.get(self.module)
        try:
            if found is None:
                found = importlib.import_module(self.module)
            for part in self._parts:
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise FormError(self._message(f"nothing ({error})")) from error
        if found is None or found is not self._fitting:
            instead = self.form.mismatch(found)
            if instead is not None:
                raise FormError(self._message(instead))
            self._fitting = found
        return found

    def _message(self, received: str) -> str:
        library = self.module.partition(".")[0]
        return (
            f"ipu_keras relies on the private name `{self.path}`, which has another form in "
            f"{library} {_version(library)}. Expected: {self.form}. Received: {received}. Install "
            f"a version of {library} that this version of ipu_keras was made for."
        )


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _plain(signature: inspect.Signature) -> inspect.Signature:
    """Leaves annotations out, which would make a message unreadable."""
    parameters = signature.parameters.values()
    return signature.replace(
        parameters=[item.replace(annotation=inspect.Parameter.empty) for item in parameters],
        return_annotation=inspect.Signature.empty,
    )


def _version(library: str) -> str:
    try:
        return getattr(importlib.import_module(library), "__version__", "(unknown version)")
    except ImportError:
        return "(not installed)"


def _kind(found: Any) -> str:
    """Names the kind of an object in the words that forms use."""
    if inspect.isclass(found):
        return "a class"
    if inspect.isroutine(found):
        return "a function"
    if isinstance(found, ModuleType):
        return "a module"
    return f"a value of type {type(found).__name__}"


def _described(kind: str, *parts: str) -> str:
    return " ".join([kind, " and ".join(parts)]) if parts else kind


def _joined(kind: str, *parts: str) -> str | None:
    """Describes the differences of an object of the right kind; `None` if there are none."""
    return _described(kind, *parts) if parts else None


def _members_mismatch(
    found: Any, attributes: Iterable[str], members: Mapping[str, Form]
) -> Iterator[str]:
    missing = [name for name in (*attributes, *members) if not hasattr(found, name)]
    if missing:
        yield f"without {', '.join(missing)}"
    for name, form in members.items():
        instead = form.mismatch(getattr(found, name)) if name not in missing else None
        if instead is not None:
            yield f"whose {name} is {instead}"


def _codes(owner: type) -> list[CodeType]:
    """Returns the compiled code of the methods of a class and of its bases."""
    items = (item for base in owner.__mro__ for item in vars(base).values() if callable(item))
    codes = (getattr(inspect.unwrap(item), "__code__", None) for item in items)
    return [code for code in codes if code is not None]


def _stores(code: CodeType, name: str) -> bool:
    """Whether compiled code assigns an attribute.

    `dis.get_instructions` would tell too, but takes as long as everything else that is
    compared.
    """
    if name not in code.co_names:
        return False
    # An instruction is two bytes. For a position above 255 a prefix instruction holds the high
    # bits; those are not compared, so two names 256 positions apart count as one.
    instruction = bytes((dis.opmap["STORE_ATTR"], code.co_names.index(name) & 0xFF))
    place = code.co_code.find(instruction)
    while place > 0 and place % 2:  # it began within another instruction
        place = code.co_code.find(instruction, place + 1)
    return place >= 0

"""Looks names up in the libraries that are installed, which is where scripts will find them."""

import ast
import importlib
import warnings
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from ipu_keras.internals.keras_2_habits import advice
from ipu_keras_tools.checks.known_values import UNKNOWN, Known
from ipu_keras_tools.checks.script_scopes import Notes, advice_for_tensorflow_1

# Libraries that are imported to look into them. Nothing of the user's is: importing runs it.
_LIBRARIES = (
    *("tensorflow", "tensorflow_core", "keras"),
    *("ipu_tensorflow_addons", "ipu_keras", "popart", "popart_core", "popdist", "horovod"),
)

# Modules of the Poplar SDK that scripts import and that are not here, unless somebody has made
# one of that name.
_OF_POPLAR = frozenset({"gcprofile", "poplar", "poprun", "poptorch", "popxl", "pva"})
_ELSEWHERE = "It is of the Poplar SDK, and no part of what IPU Keras has."


def is_of_library(module: str) -> bool:
    """Whether a module belongs to a library that is looked into."""
    return module.partition(".")[0] in _LIBRARIES


def imported(module: str, name: str | None, node: ast.stmt, notes: Notes) -> Any:
    """Returns what an import gives, if it is from a library that is looked into.

    An import that will fail, and the documented names in it, are noted.

    Args:
        name: The name that is taken from the module; `None` for the module itself.
    """
    root = module.partition(".")[0]
    if root in _OF_POPLAR and find_spec(root) is None:
        missing = ModuleNotFoundError(f"No module named {root!r}", name=root)
        notes.refuse(node, missing, _ELSEWHERE)
    if not is_of_library(module):
        return UNKNOWN
    import_module = notes.surroundings.import_module
    whole = module if name is None else f"{module}.{name}"
    try:
        found: Any = import_module(module)
    except ImportError as error:
        _miss(whole, node, error, notes, _advice_on_module(error.name or ""))
        return UNKNOWN
    if name is None:
        notes.names.use(whole, node.lineno)
        return Known(found)
    if not _has(found, name):
        try:
            found = import_module(whole)
        except ImportError:
            instead = _advice_on(found, name)
            _miss(whole, node, _not_importable(found, name), notes, instead)
            return UNKNOWN
    else:
        found = getattr(found, name)
    notes.names.use(whole, node.lineno)
    return Known(found)


def attribute_of(value: Any, node: ast.Attribute, notes: Notes) -> Any:
    """Returns what is known of an attribute of a module, class or other value of a library."""
    name = node.attr
    if _has(value, name):
        found = getattr(value, name)
        notes.names.use(f"{_name_of(value)}.{name}", node.lineno)
        return Known(found)
    if isinstance(value, ModuleType):
        error = _as_read(value, name)
        if error is not None:
            _miss(f"{_name_of(value)}.{name}", node, error, notes)
    return UNKNOWN


def _has(value: Any, name: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that are deprecated warn
        try:
            return hasattr(value, name)
        except Exception:
            return False  # a lazy module whose library is not installed


def _as_read(value: Any, name: str) -> AttributeError | None:
    try:
        getattr(value, name)
    except AttributeError as error:
        return error
    except Exception:
        return None
    return None


def _advice_on_module(name: str) -> str:
    """Says what to write in place of a module that does not exist."""
    parent, _, attribute = name.rpartition(".")
    try:
        return _advice_on(importlib.import_module(parent), attribute) if parent else ""
    except ImportError:
        return ""


def _advice_on(module: ModuleType, name: str) -> str:
    """Says what to write in place of a name that a module does not have."""
    error = _as_read(module, name)
    return "" if error is None else advice(error)


def _not_importable(module: ModuleType, name: str) -> ImportError:
    """Returns the error of `from module import name`, with what reading the name says."""
    read = _as_read(module, name)
    said = f"cannot import name {name!r} from {module.__name__!r}"
    return ImportError(said if read is None else str(read), name=name)


def _miss(
    name: str, node: ast.expr | ast.stmt, error: Exception, notes: Notes, instead: str = ""
) -> None:
    owner, _, attribute = name.rpartition(".")
    is_old = owner in ("tensorflow", "tf") and not notes.surroundings.is_tensorflow_1
    old = advice_for_tensorflow_1(attribute) if is_old else ""
    notes.refuse(node, error, instead or old or " ".join(getattr(error, "__notes__", ())))


def _name_of(value: Any) -> str:
    name = getattr(value, "__name__", "") if _has(value, "__name__") else ""
    return name if isinstance(value, ModuleType) else f"{getattr(value, '__module__', '')}.{name}"

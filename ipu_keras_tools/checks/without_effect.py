"""What is accepted and changes nothing here, as docstrings say it.

They say it in one form, `Has no effect: the reason.`, about an argument or about the whole
function; values come first if it holds for some only: `` `True` has no effect: ... ``. The
reference of the documentation and `ipu-keras check` are made of that.
"""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType, NoneType
from typing import Any

from ipu_keras.config import OPTIONS
from ipu_keras_tools.checks.calls import Call
from ipu_keras_tools.checks.known_values import Instance, Known

# Words of the docstrings for what is missing here. Other mentions of effects hold for IPUs too.
_OTHERWISE = re.compile("Not implemented|not modelled")
_OF_ARGUMENT = re.compile(r"((?:`[^`]+`(?:, | and )?)*) ?\b[Hh](?:as|ave) no effect: (.*)")
_OF_ALL = re.compile(r"\bHas no effect: (.*)")
_OURS = ("ipu_keras.", "ipu_addons.")
# Types whose values are compared at once and give a truth value. Arrays and tensors do neither, so
# they are only ever equal to themselves.
_PLAIN = (bool, int, float, str, bytes, NoneType)


@dataclass(frozen=True)
class IdleArgument:
    """An argument that changes nothing.

    Args:
        why: The reason that the docstring gives.
        values: Values that change nothing; empty if no value changes anything.
    """

    why: str
    values: tuple[Any, ...] = ()

    def concerns(self, given: Any, default: Any) -> bool:
        """Whether something is given that another value would not change."""
        if self.values:
            return any(_is(given, value) for value in self.values)
        return not _is(given, default)

    def shown(self, argument: str) -> str:
        """Returns the beginning of a sentence on it; `argument` is empty for a whole function."""
        if not argument:
            return "It has"
        values = [f"`{argument}={value!r}`" for value in self.values] or [f"`{argument}`"]
        return f"{' and '.join(values)} {'has' if len(values) == 1 else 'have'}"


@dataclass(frozen=True)
class IdleUse:
    """What a call gives to no effect.

    Args:
        argument: The name of the argument; empty if the whole call has no effect.
        place: The position among the positional arguments; `None` if it is given by name.
        why: The reason that the docstring gives.
    """

    argument: str
    place: int | None
    why: str


def lacks(name: str, found: Any) -> Iterator[str]:
    """Yields sentences of a documented name on what is accepted and changes nothing."""
    if name.endswith(".IPUConfig"):
        options = [option for option in OPTIONS if not option.is_category]
        idle = sum(option.effect is None for option in options)
        yield f"{idle} of {len(options)} options have no effect: [the table](../ipu_config.md)"
        return
    if name.endswith(".SessionOptions"):
        effects = [option.effect for option in found.options().values()]
        idle = sum(effect is not None and effect.name == "NONE" for effect in effects)
        yield f"{idle} of {len(effects)} options have no effect: [the table](../popart.md)"
        return
    for owner, one in _with_methods(found):
        for argument, said in idle_arguments(one).items():
            yield f"{owner}{said.shown(argument)} no effect: {said.why}."
        for sentence in _sentences(inspect.getdoc(one) or ""):
            if _OTHERWISE.search(sentence):
                yield owner + re.sub("^Args: ", "", sentence)


def _with_methods(found: Any) -> Iterator[tuple[str, Any]]:
    """Yields a function, or a class and its public methods, with how sentences on them begin."""
    yield "", found
    if inspect.isclass(found):
        for name, member in inspect.getmembers(found, inspect.isfunction):
            if not name.startswith("_") and member.__module__.startswith("ipu_"):
                yield f"`{name}`: ", member


def _sentences(text: str) -> Iterator[str]:
    yield from (" ".join(one.split()) for one in re.split(r"(?<=\.)\s+", text))


def idle_uses(call: Call) -> Iterator[IdleUse]:
    """Yields what a call of a function or class of this package gives to no effect."""
    idle = idle_arguments(call.function)
    if "" in idle:
        yield IdleUse("", None, idle[""].why)
        return
    if not idle:
        return
    defaults = _defaults(call.function)
    places = {name: place for place, name in enumerate(_names_by_place(call))}
    for name, value in _bound(call).items():
        if name in idle and idle[name].concerns(value, defaults.get(name)):
            place = None if name in call.named else places[name]
            yield IdleUse(name, place, idle[name].why)


def idle_option(owner: Any, name: str, given: Any) -> str | None:
    """Returns why setting an option of PopART changes nothing; `None` if it changes something."""
    kind = owner.library_kind if isinstance(owner, Instance) else None
    if kind is None or not kind.__module__.startswith("ipu_keras.popart.options."):
        return None
    option = getattr(kind, name, None)
    effect = getattr(option, "effect", None)
    if option is None or effect is None or effect.name != "NONE" or _is(given, option.default):
        return None
    return _reason(option.why_idle)


def refused_option(owner: Any, name: str) -> AttributeError | None:
    """Returns the error of setting an option that PopART does not have; `None` if it has it."""
    kind = owner.library_kind if isinstance(owner, Instance) else None
    is_options = kind is not None and kind.__module__.startswith("ipu_keras.popart.options.")
    if kind is None or not is_options or hasattr(kind, name):
        return None
    try:
        setattr(kind(), name, None)
    except AttributeError as error:
        return error
    except Exception:
        return None  # the option exists, and None is of the wrong type for it
    return None


def idle_arguments(function: Any) -> Mapping[str, IdleArgument]:
    """Returns the arguments of a function or class that change nothing, by name.

    Only docstrings of this package say such things. What is said of a whole function is under
    the empty name.

    Example:
        >>> from ipu_keras.utils import create_ipu_config
        >>> idle_arguments(create_ipu_config)["enable_ipu_events"].why
        'there are no trace events'
    """
    # The results are cached by function, and other objects that can be called need not be hashable.
    is_documented = inspect.isclass(function) or inspect.isroutine(function)
    return _idle_arguments(function) if is_documented else MappingProxyType({})


@cache
def _idle_arguments(function: Any) -> Mapping[str, IdleArgument]:
    found: dict[str, IdleArgument] = {}
    for one in _ours(function):
        found = {**_idle_in(inspect.cleandoc(one.__doc__ or "")), **found}
    taken = _parameters(function)
    # A class derived from ours may no longer take what its base documents.
    takes_any = any(one.kind is one.VAR_KEYWORD for one in taken.values())
    return MappingProxyType(
        {name: one for name, one in found.items() if takes_any or not name or name in taken}
    )


def _ours(function: Any) -> Iterator[Any]:
    """Yields a function, or a class and its bases, as far as they belong to this package."""
    for one in inspect.getmro(function) if inspect.isclass(function) else (function,):
        if (getattr(one, "__module__", None) or "").startswith(_OURS):
            yield one


def _idle_in(docstring: str) -> dict[str, IdleArgument]:
    about, _, rest = docstring.partition("\nArgs:\n")
    arguments, _, _ = rest.partition("\n\n")
    found = {}
    of_all = _OF_ALL.search(" ".join(about.split()))
    if of_all is not None:
        found[""] = IdleArgument(_reason(of_all[1]))
    for entry in re.split(r"\n(?= {4}[\w*])", f"\n{arguments}"):
        name, _, text = entry.strip().partition(": ")
        matched = _OF_ARGUMENT.search(" ".join(text.split()))
        if matched is None:
            continue
        quoted = re.findall("`([^`]+)`", matched[1])
        values = tuple(_literals(quoted))
        # Values such as names of constants cannot be compared with what a script gives.
        if values or not quoted:
            found[name] = IdleArgument(_reason(matched[2]), values)
    return found


def _reason(text: str) -> str:
    return next(_sentences(text)).rstrip(".")


def _literals(texts: Sequence[str]) -> Iterator[Any]:
    for text in texts:
        with suppress(ValueError, SyntaxError):
            yield ast.literal_eval(text)


def _is(given: Any, value: Any) -> bool:
    """Whether what is known of an argument is a certain value."""
    if not isinstance(given, Known):
        return False
    if given.value is value:
        return True
    return isinstance(given.value, _PLAIN) and isinstance(value, _PLAIN) and given.value == value


def _signature(call: Call) -> inspect.Signature | None:
    """Returns the signature of what is called, without `self`, if it has one."""
    try:
        signature = inspect.signature(call.function)
    except (TypeError, ValueError):
        return None
    names = list(signature.parameters)
    if names[:1] == ["self"] and isinstance(call.owner, Instance):
        return signature.replace(parameters=list(signature.parameters.values())[1:])
    return signature


def _bound(call: Call) -> dict[str, Any]:
    """Returns what is known of the arguments, by name; none of a call that will be refused."""
    signature = _signature(call)
    if signature is None:
        return {}
    try:
        bound = signature.bind_partial(*call.positional, **call.named).arguments
    except TypeError:
        return {}
    further = {
        name: value
        for one in signature.parameters.values()
        if one.kind is one.VAR_KEYWORD
        for name, value in bound.pop(one.name, {}).items()
    }
    return {**bound, **further}


def _names_by_place(call: Call) -> list[str]:
    signature = _signature(call)
    return [] if signature is None else list(signature.parameters)


def _defaults(function: Any) -> dict[str, Any]:
    """Returns the defaults of arguments; for a class, also of those that its bases take."""
    found: dict[str, Any] = {}
    for one in _ours(function):
        found = {**{name: each.default for name, each in _parameters(one).items()}, **found}
    return found


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    """Returns the parameters of a function or class by name; none if nobody knows."""
    with suppress(TypeError, ValueError):
        return inspect.signature(function).parameters
    return {}

"""Makes the functions of the older API that set options, from descriptions of them.

Signatures, checks and docstrings follow from a description, and from the options that it names.
All that a call is given is checked first, so that one that is refused has changed nothing.
"""

import functools
import inspect
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

import numpy as np

from ipu_keras.settings.config_tree import ConfigTree
from ipu_keras.settings.ipu_options import OPTIONS

REQUIRED = Parameter.empty
_AS_OPTION = object()
_OPTIONS = {option.name: option for option in OPTIONS}


@dataclass(frozen=True)
class Argument:
    """An argument of a setter.

    Args:
        option: The full name of the option that it sets; empty if it sets none by itself.
        default: The default of the parameter, or `REQUIRED`; by default it is the option's.
        words: The entry in the docstring, behind what the option's table says.
        take: Checks the argument, given its name, its value and that of the option now. Returns
            what the option is set to, or without one whether anything is asked for.
        why_idle: Why it has no effect; empty if it has one.
        unless: An argument that gives it an effect.
    """

    name: str
    option: str = ""
    default: Any = _AS_OPTION
    words: str = ""
    take: Callable[[str, Any, Any], Any] = lambda name, value, now: value
    why_idle: str = ""
    unless: str = ""

    @property
    def parameter(self) -> Parameter:
        """The parameter of the function, whose type is the option's, or that of the default."""
        option = _OPTIONS.get(self.option)
        default = self.default
        if default is _AS_OPTION and option is not None:
            default = option.default
        kind = type(default) if option is None else option.hint
        annotation = kind | None if default is None else kind
        if option is None and default in (None, REQUIRED):
            annotation = Any
        return Parameter(
            self.name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation
        )

    @property
    def entry(self) -> str:
        """The entry in the docstring."""
        said = [self.words]
        if self.option:
            said = [_OPTIONS[self.option].documentation, *said, f"Sets `{self.option}`."]
        text = " ".join(filter(None, said)) or f"Has no effect: {self.why_idle}."
        return _wrapped(f"{self.name}: {text}")


@dataclass(frozen=True)
class Setter:
    """A function that sets options of the configuration that it is given, or of a new one.

    Args:
        example: The arguments of a call in the docstring; `None` for a docstring without one.
        rule: Refuses arguments that contradict each other or the configuration. Returns options
            that follow from several of them.
        creates: Whether the configuration is a new one.
    """

    name: str
    documentation: str
    arguments: tuple[Argument, ...]
    example: Mapping[str, Any] | None
    rule: Callable[[ConfigTree, Mapping[str, Any]], Mapping[str, Any]] = lambda opts, given: {}
    creates: bool = False

    @property
    def signature(self) -> inspect.Signature:
        """The signature of the function."""
        opts = Parameter("opts", Parameter.POSITIONAL_OR_KEYWORD, annotation=ConfigTree)
        parameters = [] if self.creates else [opts]
        return inspect.Signature(
            [*parameters, *(each.parameter for each in self.arguments)],
            return_annotation=ConfigTree,
        )

    @property
    def docstring(self) -> str:
        """The docstring of the function."""
        entries = [] if self.creates else ["    opts: The `IPUConfig` to change."]
        returned = "An `IPUConfig` with these options." if self.creates else "`opts`."
        return "\n".join(
            [
                *(self.documentation, "", "Args:", *entries),
                *(each.entry for each in self.arguments),
                *("", "Returns:", f"    {returned}", "", "Raises:"),
                "    TypeError: An argument is of another type.",
                "    ValueError: A value is refused, or arguments contradict each other.",
                *([] if self.example is None else self._example_lines(self.example)),
            ]
        )

    def _example_lines(self, example: Mapping[str, Any]) -> Iterator[str]:
        opts = [] if self.creates else ["create_ipu_config()"]
        call = ", ".join([*opts, *(f"{name}={value!r}" for name, value in example.items())])
        set_here: dict[str, Any] = {}
        for each in self.arguments:
            if each.option:
                default = _OPTIONS[each.option].default
                given = example.get(each.name, each.parameter.default)
                value = each.take(each.name, given, default)
                set_here |= {each.option: value} if value != default else {}
        shown = ", ".join(f"{name}={set_here[name]!r}" for name in _OPTIONS if name in set_here)
        yield from ("", "Example:", "", f">>> {self.name}({call})")
        yield f"IPUConfig({shown})"

    def write(self, opts: ConfigTree, given: Mapping[str, Any]) -> None:
        """Writes the arguments of a call to their options: all of them, or none if it raises."""
        if not isinstance(opts, ConfigTree):
            raise TypeError(
                "`opts` must be an IPUConfig, as `create_ipu_config` returns it. "
                f"Received: opts={opts!r} of type {type(opts).__name__}"
            )
        taken = {
            each.name: each.take(
                each.name, given[each.name], _read(opts, each.option) if each.option else None
            )
            for each in self.arguments
        }
        written = {
            **self.rule(opts, taken),
            **{each.option: _checked(each, taken[each.name]) for each in self.arguments},
        }
        for option, value in written.items():
            if option:
                path, _, name = option.rpartition(".")
                setattr(_read(opts, path), name, value)
        idle = [
            f"`{each.name}` ({each.why_idle})"
            for each in self.arguments
            if each.why_idle and taken[each.name] and not taken.get(each.unless)
        ]
        if idle:
            # Above this one are the function, and what TensorFlow wraps deprecated ones in.
            warnings.warn(f"These have no effect here: {', '.join(idle)}.", stacklevel=4)


def function_of(setter: Setter, new: Callable[[], ConfigTree], module: str) -> Callable[..., Any]:
    """Makes the function of a setter for a module; `new` makes a configuration."""
    signature = setter.signature

    def function(*args: Any, **kwargs: Any) -> ConfigTree:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{setter.name}() {error}") from None
        bound.apply_defaults()
        given = dict(bound.arguments)
        opts = new() if setter.creates else given.pop("opts")
        setter.write(opts, given)
        return opts

    function.__name__ = function.__qualname__ = setter.name
    function.__module__ = module
    function.__doc__ = setter.docstring
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _wrapped(entry: str) -> str:
    return textwrap.fill(
        entry, 96, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False
    )


def _read(opts: ConfigTree, path: str) -> Any:
    """Returns an option or category of a full name; all of them if it is empty."""
    return functools.reduce(getattr, filter(None, path.split(".")), opts)


def _checked(argument: Argument, value: Any) -> Any:
    """Returns a value that its option takes: numbers of NumPy count, and integers as floats."""
    if not argument.option:
        return value
    option, value = _OPTIONS[argument.option], _native(value)
    if option.type == "float" and type(value) is int:
        value = float(value)
    try:
        option.check_value(value)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"`{argument.name}` sets `{option.name}`, which does not take it. "
            f"Received: {argument.name}={value!r}. {error}"
        ) from None
    return value


def _native(value: Any) -> Any:
    """Returns numbers of NumPy, alone or in a list, as Python's."""
    if isinstance(value, list | tuple):
        return type(value)(map(_native, value))
    return value.item() if isinstance(value, np.generic) else value

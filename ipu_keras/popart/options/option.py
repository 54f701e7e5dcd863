"""How an option is written down, and what all classes of options have in common."""

import enum
import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

from ipu_keras.popart.options.kinds import Kind, kind_of
from ipu_keras.settings.option import Option, did_you_mean


class Effect(enum.Enum):
    """What an option changes here; the value is the sentence of its documentation.

    * `RESULTS`: what sessions compute, return or refuse.
    * `MODEL`: what a program would cost on IPUs.
    * `FILES`: which files are written.
    * `TRAINING`: what sessions that train compute, return or refuse.
    * `NONE`: nothing, which sessions warn of.
    """

    RESULTS = "It changes what sessions compute, return or refuse."
    MODEL = "It changes what a program is said to cost, and no numbers."
    FILES = "It changes which files are written."
    TRAINING = "It is for training, and changes nothing in inference."
    NONE = "It has no meaning here: sessions warn if it is not the default."


class Setting(Option):
    """An attribute that is checked when it is assigned; its docstring follows from the arguments.

    Args:
        default: The value before anything sets it.
        documentation: A sentence or two on what the option is about.
        effect: What it changes; `None` if it has no meaning here, or the option that holds its
            class says so.
        why_idle: A sentence on why it changes nothing, if it does not.
        kind: The values that it takes; `None` for those of the default's type.
    """

    def __init__(
        self,
        default: Any,
        documentation: str,
        effect: Effect | None = None,
        why_idle: str | None = None,
        kind: Kind | None = None,
    ):
        super().__init__(
            default, documentation, effect if why_idle is None else Effect.NONE, why_idle
        )
        self._kind = kind or kind_of(default)
        sentence = "" if self.effect is None else f" {self.effect.value}"
        expected = self._kind.expected
        first = f"{expected[:1].upper()}{expected[1:]}; {_shown(default)} at first."
        why = f" {why_idle}" if why_idle else ""
        self.__doc__ = f"{documentation}{sentence}{why} {first}"

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @property
    def default(self) -> Any:
        """A copy of the default, which may be a list or other settings that users change."""
        return self._kind.taken(self._name, self._default)

    # On the class, the option itself, so that `help` and the tables of the docs find its text.
    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else vars(instance)[self._name]

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self._name] = self._kind.taken(self._name, value)


def _shown(value: Any) -> str:
    """Shows a value as scripts write it, also a member of an enumeration or a set of those."""
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, set) and value:
        # Sorted, as a set has another order in each process and docs are compared with it.
        return "{" + ", ".join(sorted(map(_shown, value))) + "}"
    return repr(value)


class Settings:
    """Some options. Values are checked when they are assigned; other attributes are refused.

    Args:
        *values: Options in the order of their class.
        **named: Options by their names.
    """

    _options: dict[str, Setting] = {}  # noqa: RUF012

    def __init_subclass__(cls) -> None:
        cls._options = {name: each for name, each in vars(cls).items() if isinstance(each, Setting)}
        # `help` and editors show the options as arguments, which `*values` would hide.
        if "__init__" not in vars(cls):
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            cls.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
                [
                    inspect.Parameter(name, kind, default=option.default)
                    for name, option in cls._options.items()
                ]
            )

    def __init__(self, *values: Any, **named: Any):
        if len(values) > len(self._options):
            raise TypeError(
                f"{type(self).__name__} takes {', '.join(self._options) or 'no arguments'}. "
                f"Received: {len(values)} values"
            )
        given = dict(zip(self._options, values, strict=False))
        if twice := sorted(given.keys() & named):
            raise TypeError(f"{type(self).__name__} has got {', '.join(twice)} more than once")
        for name, option in self._options.items():
            setattr(self, name, option.default)
        for name, value in {**given, **named}.items():
            setattr(self, name, value)

    @classmethod
    def options(cls) -> Mapping[str, Setting]:
        """Returns all options by name."""
        return MappingProxyType(cls._options)

    def copy(self) -> Self:
        """Returns a copy that does not change with these options."""
        twin = type(self).__new__(type(self))
        for name in self._options:
            setattr(twin, name, getattr(self, name))
        return twin

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._options:
            raise AttributeError(self._unknown(name))
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(self._unknown(name))

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!s}" for name, value in vars(self).items())
        return f"{type(self).__name__}({options})"

    def _unknown(self, name: str) -> str:
        lower = {option.lower(): option for option in self._options}
        close = did_you_mean(name.lower(), lower, "{}")
        hint = f" Did you mean {lower[close]!r}?" if close else ""
        return f"{type(self).__name__!r} has no option {name!r}.{hint}"

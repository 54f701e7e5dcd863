"""A typed tree of options, built from one flat table.

Owns what every option of a tree has in common: metadata, exact type and value checks, the
did-you-mean errors, copying and freezing. `ipu_options.py` has the options
themselves.
"""

import copy
import difflib
import typing
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ipu_keras.settings.arguments import noted
from ipu_keras.settings.option import Constraint, Option

_NOT_NEGATIVE = Constraint(lambda value: value >= 0, "0 or more")


class AttributeMetadata(Option):
    """What is known about one option or category, and the checks of its values.

    Instances are the rows of an option table; users get them from
    `IPUConfig.get_attribute_metadata`.

    Args:
        default: The default value, or `None` for a category. Each reader gets its own copy.
        documentation: What the option means, with units.
        effect: What the option does in the emulator today, or `None` if nothing reads it.
        why_idle: A sentence on why nothing reads it.
        hint: The class or type hint that values must satisfy exactly; `None` for the class of the
            default.
        constraint: Condition on values of the right type, if any. Whole numbers without one are 0
            or more.
        also_accepts: Further classes that values may have although `type` does not name them.
        deprecated_msg: What to use instead, or `None` if not deprecated.
        stands_for: Full name of the option that this is another name of; empty
            if it is one of its own.

    Example:

    >>> from ipu_keras.config import IPUConfig
    >>> metadata = IPUConfig().get_attribute_metadata("io_tiles.num_io_tiles")
    >>> metadata.name, metadata.type, metadata.default, metadata.deprecated
    ('io_tiles.num_io_tiles', 'int', 0, False)
    """

    # Full dotted name, relative to the root of the tree: a table gives it to its rows.
    name: str
    deprecated_msg: str | None

    def __init__(
        self,
        default: Any,
        documentation: str,
        effect: str | None = None,
        *,
        why_idle: str | None = None,
        hint: Any = None,
        constraint: Constraint | None = None,
        also_accepts: tuple[type, ...] = (),
        deprecated_msg: str | None = None,
        stands_for: str = "",
    ):
        super().__init__(default, documentation, effect, why_idle)
        self.__doc__ = documentation
        self.hint = hint if hint is not None or default is None else type(default)
        self.also_accepts = also_accepts
        self.deprecated_msg = deprecated_msg
        self.stands_for = stands_for
        self._constraint = constraint or (_NOT_NEGATIVE if self.hint is int else None)

    @property
    def type(self) -> str | None:
        """Type of the option as text, or `None` for a category."""
        if self.is_category:
            return None
        return self.hint.__name__ if isinstance(self.hint, type) else str(self.hint)

    @property
    def is_category(self) -> bool:
        """Whether this describes a category, which groups options and has no value."""
        return self.hint is None

    @property
    def deprecated(self) -> bool:
        """Whether the option or category is deprecated."""
        return self.deprecated_msg is not None

    def check_type(self, value: Any) -> bool:
        """Returns `True` if the option may hold values of this type.

        Types are compared exactly: an int is no float and a bool is no int.

        Args:
            value: The value to check.

        Returns:
            `True`.

        Raises:
            TypeError: If the type is not one of the option's types.
        """
        if self.is_category:
            raise TypeError(f"'{self.name}' is a category: it has no type, only its options do.")
        # TensorFlow's IPU API refuses an int for a float option, so scripts that pass here pass
        # there.
        if type(value) in self.also_accepts or _has_type(value, self.hint):
            return True
        raise noted(
            TypeError(f"Trying to set {self.name} to {value}, but it must be of type {self.type}"),
            f"Received: {value!r} of type {type(value).__name__}. Types are compared exactly "
            "(an int is not a float, a bool is not an int): convert the value first.",
        )

    def check_value(self, value: Any) -> bool:
        """Returns `True` if the option may hold this value.

        Args:
            value: The value to check.

        Returns:
            `True`.

        Raises:
            TypeError: If `check_type` refuses it.
            ValueError: If the type is right and the value is not acceptable.
        """
        self.check_type(value)
        if self._constraint is None or self._constraint.holds(value):
            return True
        raise ValueError(
            f"`{self.name}` must be {self._constraint.expected}. Received: {self.name}={value!r}."
        )

    def warn_if_deprecated(self) -> None:
        """Emits a `FutureWarning` if the option or category is deprecated."""
        self._warn_if_deprecated(stacklevel=3)

    def _warn_if_deprecated(self, stacklevel: int) -> None:
        if self.deprecated:
            kind = "category" if self.is_category else "option"
            warnings.warn(
                f"The {kind} '{self.name}' is deprecated: {self.deprecated_msg}",
                FutureWarning,
                stacklevel=stacklevel,
            )

    def __repr__(self) -> str:
        return (
            f"AttributeMetadata(name={self.name!r}, type={self.type!r}, default={self.default!r})"
        )


def category(documentation: str, *, deprecated_msg: str | None = None) -> AttributeMetadata:
    """Returns the table row of a category."""
    return AttributeMetadata(None, documentation, deprecated_msg=deprecated_msg)


def option_table(rows: Mapping[str, AttributeMetadata]) -> tuple[AttributeMetadata, ...]:
    """Returns options and categories with the names that a table has them by."""
    for name, row in rows.items():
        row.name = name
    return tuple(rows.values())


class ConfigCategory:
    """One branch of a `ConfigTree`: reads and writes the options below a path.

    The values live in the root, so a category stays valid however long it is held. Reading a
    name that does not exist is a `ValueError`, as it is for writing, so that a misspelt option
    in a `getattr` with default or a `hasattr` does not pass unnoticed. Names with a leading
    underscore are not options; for them the usual `AttributeError` keeps Python's protocols
    (copying, pickling, inspection) working.
    """

    __slots__ = ("_path", "_root")

    _path: str
    _root: "ConfigTree"

    def __init__(self, root: "ConfigTree", path: str):
        object.__setattr__(self, "_root", root)
        object.__setattr__(self, "_path", path)

    def get_attribute_metadata(self, attr: str) -> AttributeMetadata:
        """Returns what is known about an option or category.

        Args:
            attr: The dotted name, relative to the object this is called on.

        Returns:
            An `AttributeMetadata`.

        Raises:
            ValueError: If there is no such option or category.

        Example:

        >>> from ipu_keras.config import IPUConfig
        >>> IPUConfig().io_tiles.get_attribute_metadata("num_io_tiles").name
        'io_tiles.num_io_tiles'
        """
        if not isinstance(attr, str):
            raise TypeError(
                "`attr` must be the name of an option or category, such as "
                f"'io_tiles.num_io_tiles'. Received: attr={attr!r}"
            )
        metadata = self._root.TABLE.get(self._full_name(attr))
        if metadata is None:
            problem = self._not_an_attribute(attr)
            raise noted(
                ValueError(f"Could not get attribute metadata for '{attr}': {problem}"),
                *problem.__notes__,
            )
        return metadata

    # Checkers take the options from `config_options.pyi`, and find misspelt ones by it.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
            if self._full_name(name) not in self._root.TABLE:
                raise self._not_an_attribute(name)
            return self._root._read(self._full_name(name))

        def __setattr__(self, name: str, value: Any) -> None:
            metadata = self._root.TABLE.get(self._full_name(name))
            if metadata is None:
                raise self._not_an_attribute(name)
            if metadata.is_category:
                options = ", ".join(self._root._categories[metadata.name]._options())
                raise noted(
                    Exception(f"{metadata.name} is a category and cannot be assigned to."),
                    f"Assign to one of its options instead: {options}.",
                )
            self._root._write(metadata, value)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name.rpartition(".")[2] for name in self._options())]

    def __repr__(self) -> str:
        prefix = self._full_name("")
        changed = [
            f"{name.removeprefix(prefix)}={value!r}"
            for name, value in self._root._values.items()
            if name.startswith(prefix) and value != self._root.TABLE[name].default
        ]
        return f"{self._label()}({', '.join(changed)})"

    def __reduce__(self) -> Any:
        # A deep copy of a category belongs to a deep copy of its tree.
        return _category_at, (self._root, self._path)

    def _label(self) -> str:
        return f"{type(self._root).__name__}.{self._path}"

    def _full_name(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def _options(self) -> list[str]:
        """Full names of the options and categories directly below this one."""
        return [name for name in self._root.TABLE if name.rpartition(".")[0] == self._path]

    def _not_an_attribute(self, name: str) -> ValueError:
        received = self._full_name(name)
        return noted(
            ValueError(
                f"'{name}' is not a valid attribute of this config. "
                f"Did you mean '{closest_option(received, self._root.TABLE)}'?"
            ),
            f"Received: {received!r}. dir() of the config and of its categories lists all names.",
        )


class ConfigTree(ConfigCategory):
    """The root of a tree of options; subclasses name the table.

    A class body cannot declare the options as ordinary attributes: an unknown name must be an
    error on writing too, and each option has metadata.

    Example:

    >>> options = option_table(
    ...     {
    ...         "feed": category("How data arrives."),
    ...         "feed.depth": AttributeMetadata(3, "Batches in flight."),
    ...     }
    ... )
    >>> class FeedConfig(ConfigTree, options=options):
    ...     __slots__ = ()
    >>> config = FeedConfig()
    >>> config.feed.depth = 4
    >>> config
    FeedConfig(feed.depth=4)
    """

    __slots__ = ("__weakref__", "_categories", "_frozen", "_values")

    TABLE: ClassVar[Mapping[str, AttributeMetadata]] = {}
    _categories: dict[str, ConfigCategory]
    _frozen: bool
    _values: dict[str, Any]

    def __init_subclass__(cls, options: Iterable[AttributeMetadata] = (), **kwargs: Any):
        super().__init_subclass__(**kwargs)
        cls.TABLE = {**cls.TABLE, **{metadata.name: metadata for metadata in options}}

    def __init__(self) -> None:
        super().__init__(self, "")
        table = self.TABLE.items()
        values = {
            name: entry.default
            for name, entry in table
            if not entry.is_category and not entry.stands_for
        }
        categories = {
            name: ConfigCategory(self, name) for name, entry in table if entry.is_category
        }
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_categories", categories)
        object.__setattr__(self, "_frozen", False)

    def frozen_copy(self) -> Self:
        """Returns a checked, complete and unchangeable copy of this configuration.

        Every value is checked again, because a dictionary or list can be changed in place after
        it was set. A configuration that is frozen already is returned as it is. `copy.deepcopy`
        of it can be changed again.

        Raises:
            TypeError: If a value has the wrong type.
            ValueError: If a value, or a combination of values, is not acceptable.
        """
        if self._frozen:
            return self
        # A deep copy, as the user's own configuration stays changeable, dictionaries included.
        frozen = copy.deepcopy(self)
        for name, value in frozen._values.items():
            self.TABLE[name].check_value(value)
        frozen._complete()
        object.__setattr__(frozen, "_frozen", True)
        return frozen

    def _complete(self) -> None:
        """Checks what involves several options and fills in what follows from others."""

    def _read(self, name: str) -> Any:
        if name in self._categories:
            return self._categories[name]
        value = self._values[self.TABLE[name].stands_for or name]
        # A list or dictionary of a frozen configuration could otherwise be changed in place.
        return copy.copy(value) if self._frozen else value

    def _write(self, metadata: AttributeMetadata, value: Any) -> None:
        metadata.check_value(value)
        if self._frozen:
            raise TypeError(
                f"Trying to set {metadata.name} to {value}, but this is the copy of a "
                "configuration that was handed to the IPU system and cannot be changed. Change "
                "your own config, or a copy.deepcopy of this one, and configure the system again."
            )
        metadata._warn_if_deprecated(stacklevel=4)
        self._values[metadata.stands_for or metadata.name] = value

    def _label(self) -> str:
        return type(self).__name__

    def __reduce__(self) -> Any:
        return _tree_with, (type(self), self._values)


def has_options_of(active: ConfigTree, given: ConfigTree) -> bool:
    """Whether a frozen tree of options is what another one would become."""
    return type(active) is type(given) and active._values == given.frozen_copy()._values


def _tree_with(tree_type: type[ConfigTree], values: dict[str, Any]) -> ConfigTree:
    tree = tree_type()
    tree._values.update(values)
    return tree


def _category_at(root: ConfigTree, path: str) -> ConfigCategory:
    return root._categories[path]


def _has_type(value: Any, hint: Any) -> bool:
    """Whether a value satisfies a class, list, tuple or union hint, without subclasses."""
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is typing.Union:
        return any(_has_type(value, argument) for argument in arguments)
    if origin is None:
        return type(value) is hint
    return type(value) is origin and all(_has_type(item, arguments[0]) for item in value)


def closest_option(received: str, names: Iterable[str]) -> str:
    """Returns the full name that a user most likely meant by a dotted name.

    A name counts as close if its last part is, so that an option written in the wrong category
    is found; among equals, the whole path decides.
    """

    def likeness(name: str) -> tuple[float, float]:
        path = difflib.SequenceMatcher(None, received, name).ratio()
        leaf = difflib.SequenceMatcher(
            None, received.rpartition(".")[2], name.rpartition(".")[2]
        ).ratio()
        return max(path, leaf), path

    return max(names, key=likeness)

"""`popart.DebugContext` and its parts: the names that users give to tensors and operations."""

from dataclasses import dataclass

from ipu_keras.popart.exceptions import popart_exception


@dataclass(frozen=True)
class SourceLocation:
    """Says where in a program something was added to a model.

    Args:
        functionName: Name of the function.
        fileName: Path of the file.
        lineNumber: Number of the line, from 1.
    """

    functionName: str
    fileName: str
    lineNumber: int

    def __post_init__(self):
        if isinstance(self.lineNumber, bool) or not isinstance(self.lineNumber, int):
            raise popart_exception(
                "The `lineNumber` of a SourceLocation is a whole number. Received: "
                f"lineNumber={self.lineNumber!r}"
            )


class DebugContext:
    """Names what is added to a model; a string does as well wherever one is taken.

    `DebugContext(name, location)`, `DebugContext(location)` and
    `DebugContext(debugInfo, name, location)` are the forms that PopART has.

    Args:
        name: The name, which is empty by default; or a `DebugInfo`, in whose name the next
            argument names a part; or a `SourceLocation`.
        location: The name within a `DebugInfo`, or a `SourceLocation`, which models do not keep.
        where: A `SourceLocation` behind both.

    Raises:
        popart_exception: An argument is none of these.

    Example:

    >>> layer = DebugInfo(DebugContext("layer"), "my_library")
    >>> DebugContext(layer, "weights")
    DebugContext('layer/weights')
    """

    def __init__(
        self,
        name: "str | DebugInfo | SourceLocation" = "",
        location: str | SourceLocation | None = None,
        where: SourceLocation | None = None,
    ):
        given = [each for each in (name, location, where) if each is not None]
        parts: list[str] = []
        if isinstance(name, DebugInfo):
            parts.append(name.name)
            del given[0]
        if given and isinstance(given[0], str):
            parts.append(given[0])
            del given[0]
        if given and isinstance(given[0], SourceLocation):
            given.pop(0)
        if given:
            raise popart_exception(
                "A DebugContext is made of a DebugInfo, the `name`, which is a string, and a "
                f"SourceLocation, in this order, without those that are not there. Received: "
                f"{given[0]!r}"
            )
        self.name = "/".join(filter(None, parts))

    def __repr__(self) -> str:
        return f"DebugContext({self.name!r})"


class DebugInfo:
    """Collects what a library knows of an operation it adds, under the name of a context.

    Args:
        debugContext: A `DebugContext`, or the name as a string.
        api: Name of the library.

    Raises:
        popart_exception: An argument is of another type.
    """

    def __init__(self, debugContext: DebugContext | str, api: str):
        if not isinstance(api, str):
            raise popart_exception(f"The `api` of a DebugInfo is a string. Received: api={api!r}")
        self.name = debug_name(debugContext)
        self.api = api
        self.values: dict[str, str] = {}

    def setValue(self, name: str, value: str) -> bool:
        """Notes a value.

        Args:
            name: What it is called.
            value: What the name stands for.

        Returns:
            Whether there was no value of that name; else it stays what it was.

        Raises:
            popart_exception: An argument is no string.
        """
        for argument, given in (("name", name), ("value", value)):
            if not isinstance(given, str):
                raise popart_exception(
                    f"The `{argument}` of a value is a string. Received: {argument}={given!r}"
                )
        is_new = name not in self.values
        self.values.setdefault(name, value)
        return is_new

    def __repr__(self) -> str:
        return f"DebugInfo({self.name!r}, {self.api!r})"


def debug_name(given: object) -> str:
    """Returns the name that a string, a `DebugContext` or a `DebugInfo` gives."""
    if isinstance(given, DebugContext | DebugInfo):
        return given.name
    if isinstance(given, str):
        return given
    raise popart_exception(
        f"`debugContext` is a string or a DebugContext. Received: debugContext={given!r}"
    )


def one_name(context: object, prefix: object) -> str:
    """Returns the name of `debugContext` or of its older form, of which only one may be given."""
    names = debug_name(context), debug_name(prefix)
    if all(names):
        raise popart_exception(
            "`debugPrefix` is another name of `debugContext`: give one of them. Received: "
            f"debugContext={names[0]!r}, debugPrefix={names[1]!r}"
        )
    return names[0] or names[1]

"""`popart.DebugContext`: the names that users give to tensors and operations."""

from ipu_keras.popart.exceptions import popart_exception


class DebugContext:
    """Names what is added to a model; a string does as well wherever one is taken.

    Args:
        name: The name, which is empty by default.
    """

    def __init__(self, name: str = ""):
        if not isinstance(name, str):
            raise popart_exception(
                f"The `name` of a DebugContext is a string. Received: name={name!r}"
            )
        self.name = name

    def __repr__(self) -> str:
        return f"DebugContext({self.name!r})"


def debug_name(given: object) -> str:
    """Returns the name that a string or a `DebugContext` gives."""
    if isinstance(given, DebugContext):
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

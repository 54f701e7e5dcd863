"""The names that users give to tensors and operations, for reports."""

from ipu_keras.popart.exceptions import popart_exception


class DebugContext:
    """A name for what is added to a model; wherever one is taken, a string does as well.

    Args:
        name: It.
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
    """The name that a `debugContext` means.

    Args:
        given: A string or a `DebugContext`.

    Raises:
        popart_exception: It is neither.
    """
    if isinstance(given, DebugContext):
        return given.name
    if isinstance(given, str):
        return given
    raise popart_exception(
        f"`debugContext` is a string or a DebugContext. Received: debugContext={given!r}"
    )


def one_name(context: object, prefix: object) -> str:
    """The name that `debugContext`, or its older name `debugPrefix`, means.

    Args:
        context: A string or a `DebugContext`.
        prefix: The same.

    Raises:
        popart_exception: It is neither, or both are given.
    """
    names = debug_name(context), debug_name(prefix)
    if all(names):
        raise popart_exception(
            "`debugPrefix` is another name of `debugContext`: give one of them. Received: "
            f"debugContext={names[0]!r}, debugPrefix={names[1]!r}"
        )
    return names[0] or names[1]

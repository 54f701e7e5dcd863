"""The table of the pipeline stages of a model."""

from collections.abc import Callable, Sequence
from typing import Any

_LINE_LENGTH = 98
_STAGE = "Pipeline Stage"


def print_summary(
    name: str, assignments: Sequence[Any], line_length: int | None, print_fn: Callable[[str], Any]
) -> None:
    """Prints the stages of a model's layers, or of the calls of its layers, as a table.

    `line_length` is in characters; `None` gives the default.
    """
    length = _LINE_LENGTH if line_length is None else line_length
    of_calls = any(hasattr(assignment, "node_index") for assignment in assignments)
    heading: tuple[str, ...] = ("Layer (type)", _STAGE)
    if of_calls:
        heading = ("Layer (type) (node index)", "Input Layers", _STAGE)
    print_fn(f'Model: "{name}"')
    print_fn("_" * length)
    print_fn(_line(heading, length))
    print_fn("=" * length)
    for assignment in assignments:
        print_fn(_line(_row(assignment, of_calls), length))
    print_fn("_" * length)


def _row(assignment: Any, of_calls: bool) -> tuple[str, ...]:
    layer = f"{assignment.layer.name} ({type(assignment.layer).__name__})"
    stage = str(assignment.pipeline_stage)
    if not of_calls:
        return layer, stage
    inbound = ", ".join(before.name for before in assignment.inbound_layers)
    return f"{layer} ({assignment.node_index})", inbound, stage


def _line(columns: Sequence[str], length: int) -> str:
    """Returns the columns, cut to widths: the last as wide as its heading, the others alike."""
    *first, stage = columns
    width = (length - len(_STAGE)) // len(first)
    # At least one space stays between columns.
    cells = [column[: width - 1].ljust(width) for column in first]
    return "".join([*cells, stage])

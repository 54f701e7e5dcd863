"""Which compute sets take what of which others, for the page's search."""

from collections.abc import Sequence
from typing import Any

from ipu_keras.cost.flat.compute_sets import Value
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.report.rows import Row

# With more, the page would become too large.
MAX_OPERATIONS = 10_000


def operation_graph(
    model: ModelledProgram, rows: Sequence[Row], max_operations: int = MAX_OPERATIONS
) -> dict[str, Any]:
    """Returns the graph of a program's compute sets as plain values for JSON.

    Args:
        rows: The rows of the model's compute sets, in the order of execution.
        max_operations: Only so many from the beginning are in the graph.

    Returns:
        `"operations"` has a list for each compute set: its name, the position of its layer in
        `"layers"`, its family, its phase, its tile cycles in one step, the values that it
        writes, the kinds of XLA's instructions in it, and what it reads: the position of the
        compute set that makes it, or the words for a value that none makes.
    """
    program = model.program
    makers = {
        value.name: position
        for position, one in enumerate(program.compute_sets)
        for value in one.writes
    }
    layers: dict[str, int] = {}
    operations = []
    for one, row in list(zip(program.compute_sets, rows, strict=True))[:max_operations]:
        reads = [
            makers[name] if name in makers else _in_words(program.values[name])
            for name in dict.fromkeys(one.reads)
        ]
        operations.append(
            [
                row.name,
                layers.setdefault(row.layer, len(layers)),
                row.family,
                row.phase,
                row.cycles,
                [_type(value) for value in one.writes],
                list(dict.fromkeys(op.kind for op in one.ops)),
                reads,
            ]
        )
    return {"layers": list(layers), "operations": operations}


def _type(value: Value) -> str:
    return f"{value.spec.dtype}[{', '.join(map(str, value.spec.shape))}]"


def _in_words(value: Value) -> str:
    kind = "input" if value.role == "argument" else value.role
    return f"{kind} {value.name} {_type(value)}"

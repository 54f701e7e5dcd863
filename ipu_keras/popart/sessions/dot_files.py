"""Draws the graph of a session as `.dot` files for Graphviz."""

import json
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.graph import Node, OnnxGraph
from ipu_keras.popart.options.enumerations import DotCheck
from ipu_keras.store.atomic_files import write_atomically


def write_dot_files(options: Any, graph: OnnxGraph) -> None:
    """Writes the files that `dotChecks` asks for, such as `final.dot`, into `logDir`.

    All of them have the same graph, as nothing rewrites it. `DotCheck.Bwd0` has no file, with a
    warning, since gradients are no nodes. Raises a `popart_exception` if a file cannot be
    written.
    """
    if not options.dotChecks:
        return
    first, end = max(0, options.firstDotOp), max(0, options.finalDotOp)
    text = "\n".join(_lines(graph.nodes[first:end], first, names_nodes=options.dotOpNames)) + "\n"
    folder = Path(options.logDir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for check in options.dotChecks:
            if check is not DotCheck.Bwd0:
                write_atomically(folder / f"{check.name.lower()}.dot", text.encode())
    except (OSError, ValueError) as error:
        raise popart_exception(
            f"The files of SessionOptions.dotChecks cannot be written to {str(folder)!r}: {error}. "
            "Set SessionOptions.logDir to a directory that can be written to."
        ) from error
    if DotCheck.Bwd0 in options.dotChecks:
        warnings.warn(
            "SessionOptions.dotChecks has DotCheck.Bwd0, for which no file is written: gradients "
            "are no nodes of the graph. Leave it out.",
            stacklevel=2,
        )


def _lines(nodes: Iterable[Node], first: int, *, names_nodes: bool) -> Iterator[str]:
    """Yields the lines of a file: nodes with their positions in the graph, then the edges."""
    yield "digraph model {"
    made: dict[str, str] = {}
    outside: dict[str, None] = {}
    edges = []
    for place, node in enumerate(nodes, first):
        label = f"{place}. {node.kind}"
        if names_nodes and node.name:
            label = f"{label} ({node.name})"
        yield f'  n{place} [shape="box", label={_quoted(label)}];'
        for name in filter(None, node.inputs):
            if name not in made:
                outside[name] = None
            source = made.get(name, _quoted(name))
            edges.append(f"  {source} -> n{place} [label={_quoted(name)}];")
        made.update((name, f"n{place}") for name in node.outputs if name)
    yield from (f'  {_quoted(name)} [shape="ellipse"];' for name in outside)
    yield from edges
    yield "}"


def _quoted(text: str) -> str:
    """Quotes a text as a string of JSON, which the DOT language reads too."""
    return json.dumps(text, ensure_ascii=False)

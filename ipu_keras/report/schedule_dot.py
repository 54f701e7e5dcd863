"""The schedule of a program as a picture that Graphviz draws."""

from collections.abc import Iterator

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.model import ModelledProgram


def schedule_dot(model: ModelledProgram) -> str:
    """Draws a modelled program in Graphviz's DOT language.

    A box is a compute set with its position in the schedule, its family, its cycles in one step
    and its layer. Dashed arrows show the order of execution; the others lead from the compute
    set that makes a value to those that read it. Ovals are what a step starts with: the
    variables and the infeed.

    Args:
        model: A model after all passes, such as `report.model`.

    Returns:
        The text of a `.dot` file.
    """
    return "\n".join(
        [f"digraph {_quoted(model.name)} {{", "  node [shape=box];", *_lines(model), "}", ""]
    )


def _lines(model: ModelledProgram) -> Iterator[str]:
    compute_sets = model.program.compute_sets
    made_by = {value.name: f"s{k}" for k, one in enumerate(compute_sets) for value in one.writes}
    given = [
        value for value in model.program.values.values() if value.role in ("argument", "variable")
    ]
    for k, value in enumerate(given):
        made_by[value.name] = f"v{k}"
        yield f"  v{k} [label={_quoted(f'{value.role} {value.name}')}, shape=oval];"
    for k, (one, cost) in enumerate(zip(compute_sets, model.costs, strict=True)):
        yield f"  s{k} [label={_quoted(_label(k, one, cost.cycles * one.repeat))}];"
        if k:
            yield f"  s{k - 1} -> s{k} [style=dashed];"
        # A product of a value with itself reads it twice, and needs one arrow.
        for name in dict.fromkeys(one.reads):
            if name in made_by:
                yield f"  {made_by[name]} -> s{k};"


def _label(position: int, one: ComputeSet, cycles: int) -> str:
    lines = [f"{position}: {one.name}", f"{one.family}, {cycles} cycles", one.layer]
    return "\n".join(line for line in lines if line)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

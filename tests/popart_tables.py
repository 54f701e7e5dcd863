"""The tables of docs/popart.md: operations, and options of sessions.

`python tests/popart_tables.py` writes them into it.
"""

from itertools import groupby
from pathlib import Path

from ipu_keras.popart.model.graph import AI_GRAPHCORE, AI_ONNX, AI_ONNX_ML
from ipu_keras.popart.operations.operation import Operation
from ipu_keras.popart.operations.table import OPERATIONS
from ipu_keras.popart.options.option import Effect, Setting
from ipu_keras.popart.options.session_options import SessionOptions

PAGE = Path(__file__).parents[1] / "docs" / "popart.md"
DOMAINS = (AI_ONNX, AI_ONNX_ML, AI_GRAPHCORE)
EFFECTS = {
    Effect.RESULTS: "results",
    Effect.MODEL: "cost",
    Effect.FILES: "files",
    Effect.TRAINING: "training",
    Effect.NONE: "nothing",
}


def operations() -> str:
    """A row for each operation."""
    rows = [
        f"| `{kind}` | {domain} | {', '.join(str(one.since) for one in versions)} | "
        f"{_known(versions[-1])} |"
        for (domain, kind), versions in sorted(
            OPERATIONS.items(), key=lambda item: (DOMAINS.index(item[0][0]), item[0][1])
        )
    ]
    return "\n".join(["| operation | domain | since | must be known |", "|---|---|---|---|", *rows])


def options() -> str:
    """A row for each option, by what they change."""
    order = list(EFFECTS)
    found = sorted(SessionOptions.options().items(), key=lambda item: order.index(item[1].effect))
    rows = [
        f"| {EFFECTS[effect] if first else ''} | `{name}` | {_documented(option)} |"
        for effect, named in groupby(found, key=lambda item: item[1].effect)
        for first, (name, option) in zip(_firsts(), named, strict=False)
    ]
    return "\n".join(["| changes | option | what it is |", "|---|---|---|", *rows])


def page(text: str) -> str:
    """The page with the tables as they are now.

    Args:
        text: It.
    """
    for name, table in (("operations", operations()), ("options", options())):
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        text = before + start + table + "\n" + end + rest.partition(end)[2]
    return text


def _firsts():
    yield True
    while True:
        yield False


def _known(operation: Operation) -> str:
    if operation.sizes_by_values:
        return "all inputs, in sessions"
    return ", ".join(f"`{name}`" for name in sorted(operation.static))


def _documented(option: Setting) -> str:
    sentence = f" {option.effect.value}" if option.effect else ""
    return option.__doc__.replace(sentence, "").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")

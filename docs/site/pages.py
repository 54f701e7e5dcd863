"""What is made while the site is built: the reference by module, notebooks, and pictures."""

import json
import re
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from typing import Any

import flowcharts
import reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).resolve().parents[1]
NOTEBOOKS = DOCS / "notebooks"
_NAME = re.compile(r"(?<=<code>)[\w.]+(?=</code>)")
_FLOWCHART = re.compile(r'<pre class="mermaid"><code>(.*?)</code></pre>', re.S)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists the pages of modules below the reference."""
    (chapter,) = (one["Reference"] for one in config.nav if "Reference" in one)
    paths = [f"reference/{reference.file_name(module)}" for module in reference.modules()]
    chapter.append({"Modules": paths})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages."""
    for module in reference.modules():
        path = f"reference/{reference.file_name(module)}"
        files.append(File.generated(config, path, content=reference.page(module)))
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        name = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, name, content="\n".join(_markdown(cells))))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Leads from the table of names to the pages of modules."""
    if page.file.src_uri == "reference/index.md":
        for module in reference.modules():
            name = f"`{reference.short(module)}`"
            link = f"| [{name}]({reference.file_name(module)}) |"
            markdown = markdown.replace(f"| {name} |", link)
    return markdown


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Draws flowcharts, and puts what cells of notebooks show where they are, as it is."""
    html = _FLOWCHART.sub(lambda found: flowcharts.picture(unescape(found[1])), html)
    path = NOTEBOOKS / f"{Path(page.file.src_uri).stem}.ipynb"
    if page.file.src_uri.startswith("notebooks/"):
        for number, cell in enumerate(json.loads(path.read_text("utf-8"))["cells"]):
            shown = "".join(map(_html, cell.get("outputs", ())))
            html = html.replace(
                f"<p>{_place(number)}</p>", f'<div class="shown" tabindex="0">{shown}</div>'
            )
    return html


def on_post_page(output: str, **_: Any) -> str:
    """Gives the theme's search a name for who hears the page, and lets long names be divided.

    This is after the search's index was made, which has names in one piece.
    """
    without = 'data-md-component="search" role="dialog"'
    if without not in output:
        raise ValueError(
            f"The theme's search must have {without!r}, which gets a name. Found none."
        )
    output = output.replace(without, f'{without} aria-label="Search"')
    return _NAME.sub(lambda found: re.sub(r"([._]+)(?=\w)", r"\1<wbr>", found[0]), output)


def _markdown(cells: list[dict[str, Any]]) -> Iterator[str]:
    for number, cell in enumerate(cells):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield f"{source}\n"
        else:
            yield f"```python\n{source}\n```\n"
            yield f"{_place(number)}\n"


def _place(number: int) -> str:
    return f"what-cell-{number}-shows"


def _html(output: dict[str, Any]) -> str:
    """What an output looks like: HTML if it has that, else text."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "text/html" in data:
        return "".join(data["text/html"])
    return f"<pre>{escape(''.join(data['text/plain']))}</pre>"

"""Reads a page into elements that tests can ask."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "link", "img", "br", "hr", "input"}


@dataclass
class Element:
    """An element of a page, with its children and text in their order."""

    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    content: list["Element | str"] = field(default_factory=list)

    def all(self, tag: str) -> "list[Element]":
        """Elements of a tag below this one, in the order of the page."""
        return [element for element in self.walk() if element.tag == tag]

    def section(self, name: str) -> "Element":
        """The element of an id."""
        (found,) = (one for one in self.walk() if one.attributes.get("id") == name)
        return found

    def walk(self) -> "Iterator[Element]":
        """All elements below this one."""
        for part in self.content:
            if isinstance(part, Element):
                yield part
                yield from part.walk()

    @property
    def text(self) -> str:
        """Of this element and all below it, with single spaces."""
        parts = (part if isinstance(part, str) else part.text for part in self.content)
        return " ".join(" ".join(parts).split())

    def table(self) -> list[list[str]]:
        """The cells of the first table below this element, row by row, heading first."""
        rows = self.all("table")[0].all("tr")
        return [[cell.text for cell in row.walk() if cell.tag in ("td", "th")] for row in rows]


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open = [Element("page")]

    def handle_starttag(self, tag, attrs):
        if tag == "wbr":  # a place where a word may be divided, which is one all the same
            return
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self.open.append(self.open[-1].content[-1])

    def handle_startendtag(self, tag, attrs):
        self.open[-1].content.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop().tag == tag, f"line {self.getpos()[0]}: </{tag}>"

    def handle_data(self, data):
        content = self.open[-1].content
        if content and isinstance(content[-1], str):
            data = content.pop() + data
        content.append(data)


def read_html(text: str) -> Element:
    """The page as a tree.

    Raises:
        AssertionError: An element is closed that is not the last one opened.
    """
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert len(reader.open) == 1, f"<{reader.open[-1].tag}> is not closed"
    return reader.open[0]

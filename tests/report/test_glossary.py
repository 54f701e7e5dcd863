"""The glossary of pages says what that of the documentation says."""

import re

from project_imports import PROJECT

from ipu_keras.report.glossary import TERMS


def test_terms_are_those_of_the_documentation():
    text = (PROJECT / "docs/glossary.md").read_text("utf-8")
    entries = re.findall(r"^- \*\*(.+?)\*\*[^:]*: (.*?)(?=\n(?:-|\n|\Z))", text, re.M | re.S)
    written = {name: re.sub(r"[`*]", "", " ".join(words.split())) for name, words in entries}
    assert written.keys() >= TERMS.keys()
    assert {name: written[name] for name in TERMS} == TERMS

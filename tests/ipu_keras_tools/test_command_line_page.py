"""docs/command_line.md shows what the commands print."""

import re
import shlex

import pytest
from project_imports import PROJECT

from ipu_keras_tools.arguments import parser
from ipu_keras_tools.main import main

PAGE = (PROJECT / "docs" / "command_line.md").read_text("utf-8")
SHOWN = re.findall(r"```\n\$ ipu-keras (.*)\n((?:.*\n)*?)```", PAGE)


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=lambda text: text.split(" ")[0][:9])
def test_what_is_shown_is_what_is_printed(command, output, capsys, monkeypatch):
    monkeypatch.chdir(PROJECT)
    monkeypatch.syspath_prepend(PROJECT)
    assert main(shlex.split(command)) in (0, 1)
    printed = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
    assert printed == output, f"docs/command_line.md is to show:\n{printed}"


def test_all_commands_are_there():
    named = re.findall(r"^\| `([a-z-]+)", PAGE, re.MULTILINE)
    [commands] = [one for one in parser()._actions if one.dest == "command"]
    assert sorted(named) == sorted(commands.choices)

"""The test functions that take long, which `make test` leaves out or runs one case of.

`python tests/slow_tests.py TIMES...` writes `tests/slow_tests.txt` from what was measured by
`pytest --processor-times TIMES`. A test file of which anything was measured gets new lines, so all
its tests have to be in that run; other files keep theirs.
"""

import ast
import json
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from chosen_cases import function_of

FILE = Path(__file__).with_name("slow_tests.txt")
PROJECT = FILE.parents[1]

# Seconds of processor time that a case may take, on average over all cases of a function.
LIMIT = 1.0

Times = Mapping[str, Mapping[str, Any]]

_HEADING = "# Written by `python tests/slow_tests.py TIMES`, see there."


def slow_tests(file: Path = FILE) -> list[str]:
    """The functions that take long, such as `"tests/test_x.py::test_y"`.

    Args:
        file: Has one in each line.
    """
    lines = file.read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def measured_slow(times: Times) -> list[str]:
    """The functions that took long.

    What was set up for a module is shared equally by its functions that use it.

    Args:
        times: By test case, what `processor_times.py` says of it.
    """
    calls, fixtures, users = defaultdict(list), defaultdict(dict), Counter()
    for test, one in times.items():
        function = function_of(test)
        # A test that is skipped or cannot be set up has no call.
        calls[function].append(one["setup"] - one["first"] + one.get("call", 0.0))
        for name, seconds in one["fixtures"].items():
            fixtures[function].setdefault(name, []).append(seconds)
    for function, used in fixtures.items():
        users.update((_path(function), name) for name in used)
    found = []
    for function, seconds in calls.items():
        shared = (
            max(each) / users[_path(function), name] for name, each in fixtures[function].items()
        )
        if statistics.fmean(seconds) + sum(shared) > LIMIT:
            found.append(function)
    return found


def updated(old: Iterable[str], times: Times, project: Path) -> list[str]:
    """The functions that take long, those of measured files as measured, others as before.

    Args:
        old: What was listed before.
        times: As for `measured_slow`.
        project: Folder of the project, in which listed files are looked for.
    """
    measured = {_path(test) for test in times}
    kept = [one for one in old if _path(one) not in measured and exists(one, project)]
    return sorted({*kept, *measured_slow(times)})


def exists(function: str, project: Path = PROJECT) -> bool:
    """Whether there is a test function, which is looked for in the text of its file.

    Args:
        function: Its full name.
        project: Folder of the project.
    """
    path, *names = function.split("::")
    if not (project / path).is_file():
        return False
    body = ast.parse((project / path).read_text("utf-8")).body
    for name in names:
        found = [
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name
        ]
        if not found:
            return False
        body = found[-1].body
    return True


def _path(test: str) -> str:
    return test.partition("::")[0]


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(__doc__)
    measured: dict[str, Mapping[str, Any]] = {}
    for path in sys.argv[1:]:
        measured.update(json.loads(Path(path).read_text("utf-8")))
    lines = updated(slow_tests(), measured, PROJECT)
    FILE.write_text("\n".join([_HEADING, *lines]) + "\n", "utf-8")
    print(f"{len(lines)} functions take more than {LIMIT} s a case.")

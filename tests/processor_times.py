"""A plugin of pytest that measures processor time: `--processor-times FILE` writes each test's.

The file has a JSON object: by test, the seconds of its `setup`, `call` and `teardown`. Processes
that a test started and waited for are included. What fixtures of a module or session take is in
the setup of whichever test comes first, and once more in its `first` by itself; `fixtures` has
those of the module that a test uses, whoever came first. Imports of test files are in none.

Under xdist each worker measures its own tests. The seconds travel in the `user_properties` of
reports, and the process that receives all reports writes the file.
"""

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_PROPERTY = "processor_times"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--processor-times",
        metavar="FILE",
        help="writes the processor time of each test to a JSON file",
    )


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("processor_times"):
        is_worker = hasattr(config, "workerinput")
        # Tests may change the folder, also for good.
        times = ProcessorTimes(None if is_worker else Path(path).absolute())
        config.pluginmanager.register(times, "processor-times-of-tests")


class ProcessorTimes:
    """Measures all tests of a process, and writes what all processes measured.

    Args:
        path: Of the file; `None` for a worker, whose reports another process receives.
    """

    def __init__(self, path: Path | None):
        self._path = path
        self._found: dict[str, dict[str, Any]] = defaultdict(dict)
        self._children: list[int] = []
        self._before = 0.0
        # Of fixtures that are set up for several tests: in this setup, and by module and name.
        self._first = 0.0
        self._fixtures: dict[tuple[pytest.Item | pytest.Collector, str], float] = {}

    def watch(self, child: int) -> None:
        """Counts a process as it goes on, which the system tells of others when they have ended.

        Args:
            child: Its number.
        """
        self._children.append(child)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._before = self._now()
        self._first = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        before = self._now()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                seconds = self._now() - before
                self._first += seconds
                self._fixtures[request.node, fixturedef.argname] = seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        now = self._now()
        report = yield
        times: dict[str, Any] = {report.when: round(now - self._before, 3)}
        if report.when == "setup":
            module = item.getparent(pytest.Module)
            shared = {name: self._fixtures.get((module, name)) for name in item.fixturenames}
            times["first"] = round(self._first, 3)
            times["fixtures"] = {name: round(t, 3) for name, t in shared.items() if t is not None}
        # A list of the report's own: that of the test is in the reports of later phases too.
        report.user_properties = [*report.user_properties, (_PROPERTY, times)]
        self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._found[report.nodeid].update(dict(report.user_properties).get(_PROPERTY, {}))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self._path is not None:
            lines = (
                f"{json.dumps(test)}: {json.dumps(times)}"
                for test, times in sorted(self._found.items())
            )
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")

    def _now(self) -> float:
        return sum(os.times()[:4]) + sum(map(_seconds_of, self._children))


def watch(config: pytest.Config, child: int) -> None:
    """Has a process counted while it still runs, if processor time is measured at all.

    Args:
        config: Of the session.
        child: The process's number.
    """
    times = config.pluginmanager.get_plugin("processor-times-of-tests")
    if times is not None:
        times.watch(child)


def _seconds_of(child: int) -> float:
    """What a running process and those that it waited for took; 0 if it ended, or without /proc."""
    try:
        text = Path(f"/proc/{child}/stat").read_text("utf-8")
    except OSError:
        return 0.0
    # Behind the name, which may have blanks: times of it, and of its children.
    ticks = text.rpartition(")")[2].split()[11:15]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

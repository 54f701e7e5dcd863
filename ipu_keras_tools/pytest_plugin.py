"""The pytest plugin: tests that say what a model may cost on an IPU.

pytest loads it in every run, also in projects that have no such tests: TensorFlow and
`ipu_keras` are imported when the first test asks for a fixture.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ipu_keras_tools.baselines import baseline_path
from ipu_keras_tools.budget import Budget, budget_of

if TYPE_CHECKING:
    from ipu_keras_tools.configured_ipus import ConfiguredIpus
    from ipu_keras_tools.held_reports import HeldReports

_MARKER = "ipu_fits"
_WRITTEN = "ipu_baseline"
_HELD: pytest.StashKey["HeldReports"] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("ipu", "programs of IPUs").addoption(
        "--ipu-update",
        action="store_true",
        help="write what reports of `ipu_report` say as baselines, beside the test files",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(target='gc200', num_ipus=1, max_cycles=None, max_tile_memory=1.0): what "
        "`ipu_report(model, *specs)` is held to: the program fits into so many IPUs, takes so many "
        "cycles for a step, and so large a share of the memory of the fullest tile.",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    yield
    held = item.stash.get(_HELD, None)
    # A marker that nothing is held to would pass for ever, whatever the model costs.
    if _is_to_be_held(item) and (held is None or held.number == 0):
        pytest.fail(
            f"This test is marked with {_MARKER}, and held nothing to it: call the fixture "
            "`ipu_report`, as in `ipu_report(model, *specs)`",
            pytrace=False,
        )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    written = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        # Workers of pytest-xdist are other processes: these properties are all that comes back.
        for name, value in getattr(report, "user_properties", ())
        if name == _WRITTEN and report.when == "call"
    ]
    if written:
        terminalreporter.write_sep("=", "IPU baselines written")
        for path in sorted(set(written)):
            terminalreporter.write_line(path)


@pytest.fixture
def ipu(request: pytest.FixtureRequest) -> Iterator["ConfiguredIpus"]:
    """A configured IPU system and its strategy; after the test, the system is as it was before.

    It has as many IPUs of the kind as the marker `ipu_fits` says, or as the test is
    parametrised with, by
    `@pytest.mark.parametrize("ipu", [4, {"num_ipus": 2, "target": "bow"}], indirect=True)`.
    """
    from ipu_keras_tools.configured_ipus import configured_ipus

    budget = _budget(request.node)
    given = getattr(request, "param", None)
    if given is not None:
        named = given if isinstance(given, dict) else {"num_ipus": given}
        chosen = {"target": budget.target, "num_ipus": budget.num_ipus, **named}
        budget = _checked((), chosen)
    with configured_ipus(budget.num_ipus, budget.target) as configured:
        yield configured


@pytest.fixture
def ipu_report(request: pytest.FixtureRequest) -> "HeldReports":
    """Reports what a model or function would cost, as `ipu_keras.profile` does.

    The report is held to the marker `ipu_fits` of the test.
    """
    from ipu_keras_tools.held_reports import HeldReports

    item = request.node
    marked = _arguments(item) is not None
    budget = _budget(item)
    if not marked and "ipu" in request.fixturenames:
        # Without a marker, the report is for the IPUs that the test runs on.
        configured = request.getfixturevalue("ipu")
        budget = Budget(target=configured.target, num_ipus=configured.num_ipus)
    test_file, root = Path(item.path), item.config.rootpath
    test = item.nodeid.partition("::")[2].replace("::", ".")

    def written(path: Path) -> None:
        shown = path.relative_to(root) if path.is_relative_to(root) else path
        item.user_properties.append((_WRITTEN, shown.as_posix()))

    held = HeldReports(
        budget=budget,
        is_held=marked,
        path_of=lambda number: baseline_path(test_file, test, number),
        written=written if item.config.getoption("--ipu-update") else None,
    )
    item.stash[_HELD] = held
    return held


def _arguments(item: pytest.Item) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Returns the arguments of the test's markers, the nearest first; `None` if it has none."""
    markers = list(item.iter_markers(_MARKER))
    if not markers:
        return None
    named: dict[str, Any] = {}
    # pytest gives the nearest first: of the test, then of its class and module.
    for marker in reversed(markers):
        named |= marker.kwargs
    return tuple(value for marker in markers for value in marker.args), named


def _is_to_be_held(item: pytest.Item) -> bool:
    """Whether the test has a budget that reports have to be held to.

    For the fixture `ipu` alone, the marker may just say which IPUs; what does not fit into them
    is refused when it runs.
    """
    if _arguments(item) is None:
        return False
    budget = _budget(item)
    has_limits = budget.max_cycles is not None or budget.max_tile_memory < 1
    return has_limits or "ipu" not in getattr(item, "fixturenames", ())


def _budget(item: pytest.Item) -> Budget:
    return _checked(*(_arguments(item) or ((), {})))


def _checked(positional: tuple[Any, ...], named: dict[str, Any]) -> Budget:
    try:
        return budget_of(positional, named)
    except (TypeError, ValueError) as error:
        pytest.fail(str(error), pytrace=False)

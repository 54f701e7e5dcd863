"""A plugin of pytest that chooses what to run before each commit: `--cases all|chosen|rest`.

`chosen` has every test function. Of one with many cases it has four, and of one that takes long
one. Functions that take long and have one case only are left out, and so is what runs examples,
notebooks, pages of the documentation and benchmarks, or makes up calls. `rest` has exactly what
`chosen` has not. Which cases they are follows from a hash of their names, so it is the same in
every process and on every machine. Which functions take long was measured: `slow_tests.py`.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable

import pytest

MOST_CASES = 4

# Words in the path of a test file.
_ELSEWHERE = frozenset(
    (
        "benchmark",
        "benchmarks",
        "docs",
        "example",
        "examples",
        "fuzz",
        "notebooks",
        "page",
        "readme",
    )
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases",
        choices=("all", "chosen", "rest"),
        default="all",
        help="which tests: all (default), those that `make test` runs, or those that it leaves out",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    cases = config.getoption("cases")
    if cases == "all":
        return
    from slow_tests import slow_tests

    of_commits = chosen((item.nodeid for item in items), slow_tests())
    kept = [item for item in items if (item.nodeid in of_commits) == (cases == "chosen")]
    left_out = set(items) - set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = kept


def function_of(test: str) -> str:
    """The function of a test case.

    Args:
        test: Its full name, such as `"tests/test_x.py::test_y[case]"`.
    """
    return test.partition("[")[0]


def chosen(tests: Iterable[str], slow: Collection[str]) -> set[str]:
    """Those of some test cases that are run before each commit.

    Args:
        tests: Their full names, with all cases of each function.
        slow: Functions that take long.
    """
    by_function = defaultdict(set)
    for test in tests:
        by_function[function_of(test)].add(test)
    found: set[str] = set()
    for function, cases in by_function.items():
        if not _runs_elsewhere(function):
            found.update(sorted(cases, key=_hash)[: _count(len(cases), function in slow)])
    return found


def _count(num_cases: int, is_slow: bool) -> int:
    if is_slow:
        return 0 if num_cases == 1 else 1
    return MOST_CASES


def _hash(test: str) -> bytes:
    # Python's own is another one in each process.
    return hashlib.sha256(test.encode()).digest()


def _runs_elsewhere(function: str) -> bool:
    path, _, _ = function.partition("::")
    return not _ELSEWHERE.isdisjoint(re.findall("[a-z]+", path))

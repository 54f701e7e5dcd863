"""What is run before each commit, and what is left for later."""

import pytest
from chosen_cases import MOST_CASES, chosen, function_of

pytest_plugins = ["pytester"]

# Of two functions and a class, in two files of which one is an example's.
NAMES = [
    *(f"tests/test_x.py::test_many[{number}]" for number in range(20)),
    *(f"tests/test_x.py::test_few[{letter}]" for letter in ("a[0]", "b::c")),
    "tests/test_x.py::TestClass::test_one",
    "tests/docs/test_pages.py::test_page",
    "tests/test_fuzz.py::test_fuzz[1]",
    "tests/keras/test_homepages.py::test_docstring",
]
MANY, FEW, ONE = (
    f"tests/test_x.py::{name}" for name in ("test_many", "test_few", "TestClass::test_one")
)


def of(function, tests):
    return [test for test in tests if function_of(test) == function]


def test_every_function_but_those_of_examples_and_the_like():
    found = chosen(NAMES, [])
    assert len(of(MANY, found)) == MOST_CASES
    assert found - {*of(MANY, found)} == {
        *NAMES[20:23],
        "tests/keras/test_homepages.py::test_docstring",
    }


def test_one_case_of_a_slow_function_and_no_slow_single_test():
    found = chosen(NAMES, [MANY, FEW, ONE])
    assert len(of(MANY, found)) == len(of(FEW, found)) == 1
    assert of(ONE, found) == []


def test_the_choice_depends_on_names_alone():
    assert chosen(reversed(NAMES), []) == chosen(iter(NAMES), [])
    # Python's hashes of texts are others in each process.
    assert of(MANY, sorted(chosen(NAMES, []))) == [f"{MANY}[{number}]" for number in (0, 2, 4, 7)]


SOURCE = """
import pytest

@pytest.mark.parametrize("number", range(12))
def test_many(number):
    pass

@pytest.mark.parametrize("number", range(3))
def test_slow(number):
    pass

def test_slow_and_single():
    pass

class TestClass:
    @pytest.mark.parametrize("letter", "abcdefgh")
    def test_letter(self, letter):
        pass
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Returns the names of the tests that pytest runs with the plugin and some arguments."""
    listed = ["test_x.py::test_slow", "test_x.py::test_slow_and_single"]
    monkeypatch.setattr("slow_tests.slow_tests", lambda: listed)
    pytester.makepyfile(test_x=SOURCE)

    def running(*arguments):
        plugins = ("-p", "chosen_cases", "-p", "no:cacheprovider", "-p", "no:xdist")
        reports = pytester.inline_run(*plugins, *arguments).getreports("pytest_runtest_logreport")
        return [report.nodeid for report in reports if report.when == "call"]

    return running


def test_chosen_and_rest_are_all_and_share_nothing(run):
    everything, commits, rest = run(), run("--cases=chosen"), run("--cases=rest")
    assert len(everything) == 12 + 3 + 1 + 8
    assert len(commits) == MOST_CASES + 1 + 0 + MOST_CASES
    assert sorted(commits + rest) == sorted(everything) == sorted(set(everything))

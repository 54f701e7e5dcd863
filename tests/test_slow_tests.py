"""The list of tests that take long."""

import pytest
from slow_tests import exists, measured_slow, slow_tests, updated


def test_all_that_are_listed_exist():
    gone = [one for one in slow_tests() if not exists(one)]
    assert gone == [], "measure the files again: `python tests/slow_tests.py` says how"


def test_the_list_is_sorted_and_has_nothing_twice():
    assert slow_tests() == sorted(set(slow_tests()))


def took(call, setup=0.0, first=0.0, **fixtures):
    """What was measured of a test."""
    return {"setup": setup, "first": first, "fixtures": fixtures, "call": call, "teardown": 9.0}


TIMES = {
    "tests/test_x.py::test_many[a]": took(3.0),
    "tests/test_x.py::test_many[b]": took(0.5),
    "tests/test_x.py::test_cheap[a]": took(1.8),
    "tests/test_x.py::test_cheap[b]": took(0.1),
    "tests/test_x.py::test_single": took(0.1, setup=1.0),
}


def test_the_average_case_counts():
    assert measured_slow(TIMES) == ["tests/test_x.py::test_many", "tests/test_x.py::test_single"]


def test_what_a_module_sets_up_is_shared_by_the_functions_that_use_it():
    def functions(seconds):
        return {
            "tests/test_x.py::test_first": took(0.2, setup=seconds, first=seconds, made=seconds),
            "tests/test_x.py::test_second[a]": took(0.0, made=seconds),
            "tests/test_x.py::test_second[b]": took(0.0, made=seconds),
            "tests/test_x.py::test_without": took(0.9, setup=5.0, first=5.0),
        }

    assert measured_slow(functions(1.5)) == []
    assert measured_slow(functions(1.7)) == ["tests/test_x.py::test_first"]
    assert len(measured_slow(functions(2.1))) == 2


def test_a_test_that_was_skipped_is_not_slow():
    times = took(0.0)
    del times["call"]
    assert measured_slow({"tests/test_x.py::test_it": times}) == []


@pytest.fixture
def project(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_y.py").write_text(
        "def test_slow(): pass\nclass TestClass:\n    def test_slow(self): pass\n", "utf-8"
    )
    return tmp_path


def test_files_that_were_not_measured_keep_their_lines(project):
    old = [
        "tests/test_gone.py::test_slow",
        "tests/test_x.py::test_no_longer_slow",
        "tests/test_y.py::TestClass::test_gone",
        "tests/test_y.py::TestClass::test_slow",
        "tests/test_y.py::test_slow",
    ]
    assert updated(old, TIMES, project) == [
        "tests/test_x.py::test_many",
        "tests/test_x.py::test_single",
        "tests/test_y.py::TestClass::test_slow",
        "tests/test_y.py::test_slow",
    ]

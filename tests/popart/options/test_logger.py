import doctest
import logging

import pytest

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options import logger as module
from ipu_keras.popart.options.logger import getLogger


@pytest.fixture(autouse=True)
def levels_as_before():
    yield
    for name in ("popart", "popart.session", "popart.builder"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_examples():
    assert doctest.testmod(module).failed == 0


def test_messages_are_those_of_pythons_loggers(caplog):
    getLogger().setLevel("TRACE")
    session = getLogger("session")
    for name in ("debug", "info", "warn", "error", "critical"):
        getattr(session, name)(f"{name} 100%")
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [
        ("popart.session", "DEBUG", "debug 100%"),
        ("popart.session", "INFO", "info 100%"),
        ("popart.session", "WARNING", "warn 100%"),
        ("popart.session", "ERROR", "error 100%"),
        ("popart.session", "CRITICAL", "critical 100%"),
    ]


def test_a_part_has_a_level_of_its_own(caplog):
    getLogger().setLevel("OFF")
    getLogger("builder").setLevel("INFO")
    getLogger("builder").info("seen")
    getLogger("session").critical("not seen")
    getLogger().critical("not seen")
    assert [record.getMessage() for record in caplog.records] == ["seen"]


def test_unknown_names():
    with pytest.raises(popart_exception, match=r"^Unknown logger\. Received: name='x'; it must be"):
        getLogger("x")
    with pytest.raises(popart_exception, match=r"^Unknown logging level\. Received: level='loud'"):
        getLogger().setLevel("loud")


SCRIPT = """
import logging
from ipu_keras import popart
popart.getLogger("session").setLevel("INFO")
for part in ("session", "builder", "all"):
    for name in ("debug", "info", "warn"):
        getattr(popart.getLogger(part), name)(f"{part}: {name}")
for parent in (None, "popart", "popart.session"):
    handler = logging.FileHandler(path)
    logging.getLogger(parent).addHandler(handler)
    popart.getLogger("session").info(f"to the file for {parent}")
    logging.getLogger(parent).removeHandler(handler)
    popart.getLogger("session").info("to the standard error again")
"""


def test_messages_go_to_the_standard_error_unless_something_handles_them(tmp_path, run_forked):
    path = tmp_path / "log"
    script = f"path = {str(path)!r}\n{SCRIPT}"
    done = run_forked(script)
    found = [line.partition("] [popart")[2] for line in done.stderr.splitlines()]
    assert [line for line in found if line] == [
        ".session] [INFO] session: info",
        ".session] [WARNING] session: warn",
        ".builder] [WARNING] builder: warn",
        "] [WARNING] all: warn",
        *[".session] [INFO] to the standard error again"] * 3,
    ]
    assert done.stdout == ""
    assert path.read_text().splitlines() == [
        f"to the file for {parent}" for parent in (None, "popart", "popart.session")
    ]

"""The README's programs run, and print what it says that they print."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")

# Programs, each with what comes directly below it, if that is what it prints.
PROGRAMS = re.findall(r"^```python\n(.*?)^```\n(?:\n```\n(.*?)^```\n)?", README, re.M | re.S)
REFUSAL = re.search(r"^```\n(Memory allocation error.*?)^```\n", README, re.M | re.S)[1]

# Each in a session of its own, as Keras numbers names; one without imports goes on with the
# program before. What the last one's model says of a batch that does not fit comes last.
SCRIPT = """
import contextlib, io, json, sys
import keras
printed, names = [], {}
for program in json.load(sys.stdin):
    if "import" in program:
        keras.backend.clear_session()
        names = {}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(program, names)
    printed.append(out.getvalue())
import ipu_keras, tensorflow as tf
from ipu_keras.profiling.report_files import out_of_memory
specs = tf.TensorSpec((4096, 28, 28, 1)), tf.TensorSpec((4096,), tf.int32)
printed.append(out_of_memory(ipu_keras.profile(names["model"], *specs)))
sys.__stdout__.write(json.dumps(printed))
"""


@pytest.fixture(scope="module")
def printed():
    """What each program prints, and the refusal."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps([program for program, _ in PROGRAMS]),
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**environment, "PYTHONIOENCODING": "utf-8"},
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def missing(shown, text):
    """Lines that the README shows and that were not printed, in whatever order."""
    lines = {line.strip() for line in text.splitlines()}
    return [line for line in shown.splitlines() if line.strip() and line.strip() not in lines]


def test_there_are_programs():
    assert len(PROGRAMS) == 6
    assert [bool(shown) for _, shown in PROGRAMS] == [False, True, True, True, True, True]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs_print_what_is_shown(printed, number):
    program, shown = PROGRAMS[number]
    in_comments = "\n".join(re.findall(r"^print\(.*\)  # (.*)$", program, re.M))
    assert shown or in_comments
    assert missing(shown + in_comments, printed[number]) == []


def test_what_does_not_fit_is_refused_as_shown(printed):
    """The README leaves out the end of the first line, and the marks of the remedies."""
    first, *remedies = REFUSAL.splitlines()
    text = printed[-1].replace("\n- ", "\n")
    assert text.startswith(first)
    assert remedies
    assert missing("\n".join(remedies), text) == []


def test_every_example_and_benchmark_that_is_named_exists():
    root = Path(__file__).parents[1]
    named = set(re.findall(r"(?:examples|benchmarks)/\w+\.py", README))
    assert named
    assert not [name for name in named if not (root / name).is_file()]

"""The files of a report."""

import contextlib
import doctest
import json
import resource
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf

from ipu_keras import profile
from ipu_keras.advice.changes import Fix
from ipu_keras.profiling import report_files
from ipu_keras.profiling.report_files import file_name, out_of_memory, write_files, write_report
from ipu_keras.profiling.requested_outputs import RequestedOutputs
from ipu_keras.report.report import Report
from ipu_keras.settings.engine_options import EngineOptions
from ipu_keras.settings.flags import PoplarFlags

OPTION = "'autoReport.directory' in POPLAR_ENGINE_OPTIONS"


@pytest.fixture(scope="module")
def named():
    """A function: the report of a program of that name."""
    report = profile(lambda x: x + 1.0, tf.TensorSpec((8,)), name="sum")
    return lambda name: replace(report, model=replace(report.model, name=name))


def everything(reports, maps):
    """Reports and schedules in one directory, tensor maps in another one."""
    return RequestedOutputs(
        engine=EngineOptions(writes_reports=True, report_directory=Path(reports)),
        flags=PoplarFlags(tensor_map_file_path=str(maps), dump_schedule_as_dot=True),
    )


def paths_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_example_in_the_docstring():
    assert doctest.testmod(report_files).failed == 0


def test_pages_are_left_out_without_their_libraries(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    report = profile(lambda x: x + 1.0, tf.TensorSpec((8,)), name="sum")
    folder = write_report(report, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == [
        "report.json",
        "report.txt",
        "trace.json",
    ]


def test_nothing_is_overwritten(tmp_path):
    report = profile(lambda x: x + 1.0, tf.TensorSpec((8,)), name="sum")
    folders = [write_report(report, tmp_path).name for _ in range(3)]
    assert folders == ["sum", "sum_1", "sum_2"]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        *((name, name) for name in ("train", "step_1", "my-model.train", "größe", "a..b")),
        ("a/b", "a_b"),
        ("../../tmp/evil", "__.._tmp_evil"),
        ("/etc/passwd", "_etc_passwd"),
        ("C:\\x", "C_x"),
        ("<lambda>", "_lambda_"),
        ("a\0b\nc \ud800", "a_b_c_"),
        (".", "_"),
        ("..", "_"),
        (".hidden", "_hidden"),
        ("", "_"),
        ("n" * 300, "n" * 128),
        # Letters of two bytes are left whole.
        ("x" + "ö" * 300, "x" + "ö" * 63),
    ],
)
def test_names_of_files(program, expected):
    assert file_name(program) == expected


@pytest.mark.parametrize("program", ["../../evil", "", "n" * 300])
def test_files_of_any_program_are_in_their_directories(named, tmp_path, program):
    reports, maps = tmp_path / "here" / "reports", tmp_path / "here" / "maps"
    for _ in range(2):
        write_files(named(program), everything(reports, maps))
    names = [file_name(program), f"{file_name(program)}_1"]
    assert paths_in(tmp_path / "here") == sorted(
        [
            "maps",
            *(f"maps/{name}.tensor_map.json" for name in names),
            "reports",
            *(f"reports/{name}" for name in names),
            *(f"reports/{name}.schedule.dot" for name in names),
            *(
                f"reports/{name}/{file}"
                for name in names
                for file in ("report.html", "report.json", "report.txt", "trace.json")
            ),
        ]
    )
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    # In the files it has its own name.
    for name in names:
        found = json.loads((reports / name / "report.json").read_text())
        assert found["name"] == program


@pytest.mark.parametrize(
    ("directory", "reason"),
    [
        ("/dev/null/x", "[Errno 20] Not a directory: '/dev/null/x'"),
        ("/dev/null", "[Errno 17] File exists: '/dev/null'"),
        ("a\0b", "embedded null byte: 'a\\x00b'"),
    ],
)
def test_directories_that_cannot_be_used(named, directory, reason):
    with pytest.warns(UserWarning, match="cannot be used for") as warned:
        write_files(named("sum"), everything(directory, directory))
    assert [str(one.message) for one in warned] == [
        f"The directory {directory!r} cannot be used for {what} of program 'sum'; {option} can "
        f"name another one. Received: {reason}"
        for what, option in [
            ("the report", OPTION),
            ("the tensor map", "--tensor_map_file_path in TF_POPLAR_FLAGS"),
            ("the schedule", OPTION),
        ]
    ]


def test_one_directory_that_cannot_be_used_leaves_the_others(named, tmp_path):
    with pytest.warns(UserWarning, match="for the tensor map of program 'sum'") as warned:
        write_files(named("sum"), everything(tmp_path, "/dev/null/x"))
    assert len(warned) == 1
    assert paths_in(tmp_path)[:3] == ["sum", "sum.schedule.dot", "sum/report.html"]


@contextlib.contextmanager
def files_of_at_most(num_bytes):
    """While this is open, what is written beyond that is an error, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_leaves_no_part_of_a_file(named, tmp_path):
    """Reports as text fit, as JSON they do not; of files on the way nothing stays."""
    report = named("sum")
    text, plain = (len(form.encode()) for form in (str(report), report.to_json()))
    assert text < plain
    most = (text + plain) // 2

    too_large = "for the report of program 'sum'.*File too large"
    with pytest.warns(UserWarning, match=too_large), files_of_at_most(most):
        write_files(report, everything(tmp_path, tmp_path))
    assert paths_in(tmp_path) == [
        "sum",
        "sum.schedule.dot",
        "sum.tensor_map.json",
        "sum/report.txt",
    ]
    assert (tmp_path / "sum" / "report.txt").read_text("utf-8") == str(report)

    with pytest.warns(UserWarning, match="File too large") as warned, files_of_at_most(0):
        write_files(named("other"), everything(tmp_path, tmp_path))
    assert len(warned) == 3
    # Names of files that could not be written are free again.
    assert [path for path in paths_in(tmp_path) if path.startswith("other")] == ["other"]


def test_writing_a_report_by_itself_raises(named):
    assert isinstance(named("sum"), Report)
    with pytest.raises(NotADirectoryError):
        write_report(named("sum"), Path("/dev/null/x"))


def test_a_refusal_says_whose_bytes_are_guessed_and_how_to_use_more_ipus(named):
    found = named("train")
    memory = found.model.memory
    code = replace(memory, code_region_bytes=memory.code_bytes - 1)
    text = out_of_memory(replace(found, model=replace(found.model, memory=code)))
    assert "of code, but tiles can read instructions from" in text
    assert ". Bytes of code are a guess of the model. It runs nevertheless with " in text
    assert text.endswith("No change that was tried needs less memory.")

    tile = replace(memory, tile_bytes=memory.max_tile_bytes - 1)
    fix = Fix(changes={"num_ipus": 2}, max_tile_bytes=1000, fits=True, seconds_per_sample=1e-6)
    full = replace(found, model=replace(found.model, memory=tile), fixes=(fix,))
    first, fixed, how = out_of_memory(full).splitlines()
    assert "guess" not in first
    assert (
        fixed == "- the layers on 2 IPUs: fits, 1,000 bytes on the fullest tile, 1.00 us per sample"
    )
    assert how == (
        "Layers are put on several IPUs by pipeline stages: `ipu_keras.suggest_pipeline` "
        "suggests them, a model's `set_pipeline_stage_assignment` sets them."
    )


def test_a_refusal_names_what_needs_the_most_bytes(named):
    found = named("sum")
    categories = {"variables": 20, "code": 5000, "gaps": 10, "control_code": 300, "activations": 40}
    memory = replace(found.model.memory, bytes_by_category=categories, tile_bytes=1)
    text = out_of_memory(replace(found, model=replace(found.model, memory=memory)))
    assert "needs the most bytes for code 5,000, control code 300, activations 40; on that" in text

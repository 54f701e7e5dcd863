"""The files of a report."""

import sys

import tensorflow as tf

from ipu_keras import profile
from ipu_keras.report_files import write_report


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

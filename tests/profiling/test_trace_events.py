"""What older scripts extract from traces."""

import doctest
import json

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import utils
from ipu_keras.profiling import trace_events
from ipu_keras.profiling.trace_events import IpuTraceEvent

NAMES = [name for name in utils.__all__ if name.startswith("extract_")]
REPORTS = [json.dumps({"name": name}) for name in ("train", "predict")]


def summary(*reports):
    """As `ipu_compile_summary` gives it."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(
            utils_summary("compiled", tf.constant(list(reports), tf.string, [len(reports)]))
        )


def utils_summary(name, tensor):
    from ipu_keras.ops.summary_ops import tensor_summary

    return tensor_summary(name, tensor)


def test_examples():
    assert doctest.testmod(trace_events).failed == 0
    for name in ("extract_compile_reports", "extract_execute_reports"):
        names = {name: getattr(utils, name)}
        doctest.run_docstring_examples(getattr(utils, name), names, name=name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("events", [[], (), np.array([], object), tf.constant([], tf.string)])
def test_no_events(name, events):
    expected = "" if name == "extract_all_strings_from_event_trace" else []
    assert getattr(utils, name)(events) == expected


@pytest.mark.parametrize(
    "events",
    [
        REPORTS,
        [one.encode() for one in REPORTS],
        np.array([one.encode() for one in REPORTS], object),
        tf.constant(REPORTS),
        summary(*REPORTS),
    ],
    ids=["texts", "bytes", "array", "tensor", "summary"],
)
def test_reports_are_events(events):
    assert utils.extract_all_events(events) == [
        IpuTraceEvent("train", REPORTS[0]),
        IpuTraceEvent("predict", REPORTS[1]),
    ]
    assert utils.extract_all_types_from_event_trace(events) == ["COMPILE_END"] * 2
    assert utils.extract_all_strings_from_event_trace(events) == "".join(REPORTS)
    assert utils.extract_compile_reports(events) == list(
        zip(("train", "predict"), REPORTS, strict=True)
    )
    assert utils.extract_execute_reports(events) == []
    assert utils.extract_poplar_serialized_graphs(events) == []


def test_a_summary_without_reports():
    assert utils.extract_all_events(summary()) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("events", "error", "message"),
    [
        (3, TypeError, "^`events` must be what running `ipu_compile_summary` gave, or .*=3$"),
        (["x"], ValueError, r"^Each of `events` must be .* Received: events\[0\]='x'$"),
        ([REPORTS[0], None], ValueError, r"Received: events\[1\]=None$"),
        (["[]"], ValueError, r"Received: events\[0\]='\[\]'$"),
        (b"\xff\xff", ValueError, "^`events` must be what running"),
    ],
)
def test_what_is_refused(name, events, error, message):
    with pytest.raises(error, match=message):
        getattr(utils, name)(events)

"""Functions with which older scripts extract reports from traces of IPU devices.

Devices here leave no trace of events. `ipu.summary_ops.ipu_compile_summary` has the reports of
programs instead, each of which counts as one event: that a program was compiled.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.internals.tensorflow.decorators import deprecated

_no_events = deprecated(
    "There are no trace events: use `ipu_keras.last_report`, or have reports written with "
    "`autoReport.all` of POPLAR_ENGINE_OPTIONS."
)


@dataclass(frozen=True)
class IpuTraceEvent:
    """An event of a device: a program was compiled.

    Args:
        module_name: The name of the program.
        report: The program's report, as JSON.
    """

    module_name: str
    report: str

    @property
    def type(self) -> str:
        """The type of the event; "COMPILE_END" is the only one."""
        return "COMPILE_END"


def extract_all_events(events: Any) -> list[IpuTraceEvent]:
    """Makes an event of each report in a summary.

    Args:
        events: The bytes that running `ipu_compile_summary` gave, or the reports in it: a list,
            an array or a tensor of JSON texts.

    Returns:
        An event for each report; none if there is no report.

    Raises:
        TypeError: `events` is of another type.
        ValueError: One of the texts is no report.

    Example:

    >>> extract_all_events([])
    []
    """
    return [_event(index, text) for index, text in enumerate(_texts(events))]


def extract_all_strings_from_event_trace(events: Any) -> str:
    """Joins the data of events: reports, as JSON.

    Args:
        events: A summary or reports, as `extract_all_events` takes them.

    Returns:
        The reports, one after the other; empty if there is none.

    Raises:
        TypeError: `events` is of another type.
        ValueError: One of the texts is no report.

    Example:

    >>> extract_all_strings_from_event_trace([])
    ''
    """
    return "".join(event.report for event in extract_all_events(events))


def extract_all_types_from_event_trace(events: Any) -> list[str]:
    """Lists the types of events, of which there is one: "COMPILE_END".

    Args:
        events: A summary or reports, as `extract_all_events` takes them.

    Returns:
        A type for each report.

    Raises:
        TypeError: `events` is of another type.
        ValueError: One of the texts is no report.

    Example:

    >>> extract_all_types_from_event_trace([])
    []
    """
    return [event.type for event in extract_all_events(events)]


@_no_events
def extract_compile_reports(events: Any) -> list[tuple[str, str]]:
    """Lists names and reports of the programs that were compiled.

    Args:
        events: A summary or reports, as `extract_all_events` takes them.

    Returns:
        For each report the name of its program, and the report as JSON.

    Raises:
        TypeError: `events` is of another type.
        ValueError: One of the texts is no report.

    Example:

    >>> extract_compile_reports(['{"schema": 3, "name": "train"}'])
    [('train', '{"schema": 3, "name": "train"}')]
    """
    return [(event.module_name, event.report) for event in extract_all_events(events)]


@_no_events
def extract_execute_reports(events: Any) -> list[tuple[str, str]]:
    """Lists names and reports of executions; there are none, as events tell of compilations only.

    The report of a compiled program says what an execution costs.

    Args:
        events: A summary or reports, as `extract_all_events` takes them; they are checked.

    Returns:
        An empty list.

    Raises:
        TypeError: `events` is of another type.
        ValueError: One of the texts is no report.

    Example:

    >>> extract_execute_reports([])
    []
    """
    extract_all_events(events)
    return []


@_no_events
def extract_poplar_serialized_graphs(events: Any) -> list[tuple[str, str]]:
    """Lists names and graphs of programs in Poplar's form; there are none.

    `IPUConfig.serialization_output_folder` has executables written, in a form of its own.

    Args:
        events: A summary or reports, as `extract_all_events` takes them; they are checked.

    Returns:
        An empty list.

    Raises:
        TypeError: `events` is of another type.
        ValueError: One of the texts is no report.

    Example:

    >>> extract_poplar_serialized_graphs([])
    []
    """
    extract_all_events(events)
    return []


def _texts(events: Any) -> list[Any]:
    if isinstance(events, bytes):
        return [text for value in _summary(events).value for text in value.tensor.string_val]
    if isinstance(events, tf.Tensor | np.ndarray):
        events = np.ravel(events).tolist()
    if not isinstance(events, list | tuple):
        raise TypeError(
            "`events` must be what running `ipu_compile_summary` gave, or a list of the reports in "
            f"it. Received: events={events!r}"
        )
    return list(events)


def _summary(serialized: bytes) -> Any:
    summary = tf.compat.v1.Summary()
    try:
        summary.ParseFromString(serialized)
    except Exception as error:  # its class depends on which implementation protobuf uses
        raise ValueError(
            f"`events` must be what running `ipu_compile_summary` gave. Received: {serialized!r}"
        ) from error
    return summary


def _event(index: int, text: Any) -> IpuTraceEvent:
    try:
        report = text.decode() if isinstance(text, bytes) else text
        name = json.loads(report)["name"]
        if not isinstance(name, str):
            raise ValueError("its name is no text")
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(
            "Each of `events` must be the report of a program as JSON, as `ipu_compile_summary` "
            f"has it. Received: events[{index}]={text!r}"
        ) from error
    return IpuTraceEvent(name, report)

"""Arguments about reports that the older `create_ipu_config` has."""

from typing import Any

import numpy as np

from ipu_keras.settings.argument_errors import noted
from ipu_keras.settings.counts import integer_in
from ipu_keras.settings.enumerations import ExecutionProfileType
from ipu_keras.settings.switches import checked_switch

_MAX_REPORT_SIZE = 268435456
_NO_REPORTS = "without `profiling`, no reports are written"


def report_flags(
    *, profiling: Any, enable_ipu_events: Any, profile_execution: Any, report_directory: Any
) -> dict[str, str]:
    """Returns the engine's flags that arguments ask for.

    Raises a `TypeError` for an argument of another type, and a `ValueError` if they contradict
    each other.
    """
    profiles = checked_switch("profiling", profiling)
    if checked_switch("enable_ipu_events", enable_ipu_events) and profiles:
        raise noted(
            ValueError("`profiling` and `enable_ipu_events` are mutually exclusive"),
            "Received: profiling=True, enable_ipu_events=True",
        )
    if not isinstance(profile_execution, bool | np.bool_ | ExecutionProfileType | None):
        raise noted(
            TypeError(
                "`profile_execution` must be True, False, or an ExecutionProfileType instance"
            ),
            f"Received: profile_execution={profile_execution!r}",
        )
    has_executions = bool(profile_execution) and (
        profile_execution is not ExecutionProfileType.NO_PROFILE
    )
    if has_executions and not profiles:
        raise noted(
            ValueError("`profiling` is required when `profile_execution` is set"),
            f"Received: profiling=False, profile_execution={profile_execution}",
        )
    if not isinstance(report_directory, str):
        raise TypeError(
            "`report_directory` must be the path of a directory as a text. "
            f"Received: report_directory={report_directory!r}"
        )
    if not profiles:
        return {}
    return {
        "autoReport.all": "true",
        **({"autoReport.outputExecutionProfile": "true"} if has_executions else {}),
        **({"autoReport.directory": report_directory} if report_directory else {}),
    }


def idle_report_arguments(
    *,
    profiling: bool,
    enable_ipu_events: bool,
    use_poplar_text_report: Any,
    use_poplar_cbor_report: Any,
    enable_poplar_serialized_graph: Any,
    report_every_nth_execution: Any,
    max_report_size: Any,
    report_directory: str,
) -> dict[str, tuple[bool, str]]:
    """Returns for each argument whether it asks for anything that is missing here, and why.

    `report_flags` has checked `profiling`, `enable_ipu_events` and `report_directory` before.
    Other arguments are refused by a `TypeError` or `ValueError`.
    """
    text = checked_switch("use_poplar_text_report", use_poplar_text_report)
    graphs = checked_switch("enable_poplar_serialized_graph", enable_poplar_serialized_graph)
    nth = _not_negative("report_every_nth_execution", report_every_nth_execution)
    return {
        "enable_ipu_events": (bool(enable_ipu_events), "there are no trace events"),
        "use_poplar_text_report": (text and not profiling, _NO_REPORTS),
        "use_poplar_cbor_report": (
            checked_switch("use_poplar_cbor_report", use_poplar_cbor_report),
            "reports are text, JSON and pages",
        ),
        "enable_poplar_serialized_graph": (
            graphs,
            "there are no graphs of Poplar; `set_serialization_options` has executables written",
        ),
        "report_every_nth_execution": (nth != 0, "executions of a program are modelled alike"),
        "max_report_size": (
            _not_negative("max_report_size", max_report_size) != _MAX_REPORT_SIZE,
            "reports are files, of any size",
        ),
        "report_directory": (report_directory != "" and not profiling, _NO_REPORTS),
    }


def _not_negative(name: str, value: Any) -> int:
    number = integer_in(value)
    if number is None or number < 0:
        raise ValueError(f"`{name}` must be an integer of 0 or more. Received: {name}={value!r}")
    return number

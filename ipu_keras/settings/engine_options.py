"""Options of Poplar's engine: what a compiled program leaves behind.

The `POPLAR_ENGINE_OPTIONS` environment variable has them, and `compilation_poplar_options` of an
`IPUConfig`; the environment takes precedence.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ipu_keras.settings.option_warnings import OPTION_WARNINGS

ENVIRONMENT_VARIABLE = "POPLAR_ENGINE_OPTIONS"

_REPORTS = ("autoReport.all", "autoReport.outputGraphProfile", "autoReport.outputExecutionProfile")
_DIRECTORY = "autoReport.directory"
_ALLOW = "debug.allowOutOfMemory"
_STOP = "debug.floatPointOpException"
KNOWN_ENGINE_OPTIONS = (*_REPORTS, _DIRECTORY, _ALLOW, _STOP)
_TRUTH = {"true": True, "false": False, True: True, False: False}
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What is done with each program when it is compiled.

    Args:
        writes_reports: Whether its report is written: `autoReport.all`,
            `autoReport.outputGraphProfile` or `autoReport.outputExecutionProfile`.
        report_directory: The directory of reports, `autoReport.directory`; a leading `~` is the
            home directory.
        allows_out_of_memory: Whether a program runs that would not fit on an IPU:
            `debug.allowOutOfMemory`. If it says nothing, `None`, only programs are modelled that
            are not small for certain, and those without a model run.
        stops_at_exceptions: Whether an invalid operation, a division by zero or an overflow stops
            an execution: `debug.floatPointOpException`.

    Example:

    >>> EngineOptions.parse('{"autoReport.all": "true", "autoReport.directory": "reports"}')
    EngineOptions(writes_reports=True, report_directory=PosixPath('reports'), \
allows_out_of_memory=None, stops_at_exceptions=False)
    """

    writes_reports: bool = False
    report_directory: Path = Path()
    allows_out_of_memory: bool | None = None
    stops_at_exceptions: bool = False

    @classmethod
    def parse(cls, text: str) -> "EngineOptions":
        """Reads the JSON object of the environment variable; an empty text has no options.

        Raises a `ValueError` if it is none, or `of` refuses its values.
        """
        return cls.of(_given(text))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "EngineOptions":
        """Reads options by name, of which the emulator may have no use for some.

        Raises a `ValueError` if the directory is no text, or another value is not `"true"` or
        `"false"`.
        """
        return cls(
            writes_reports=any(_truth(options, name) for name in _REPORTS if name in options),
            report_directory=_directory(options, _DIRECTORY),
            allows_out_of_memory=_truth(options, _ALLOW) if _ALLOW in options else None,
            stops_at_exceptions=_STOP in options and _truth(options, _STOP),
        )


def current_engine_options(configured: Mapping[str, Any] = _NONE) -> EngineOptions:
    """Returns the options of the present environment, and behind them those of a configuration."""
    return EngineOptions.of({**configured, **_given(os.environ.get(ENVIRONMENT_VARIABLE, ""))})


def are_engine_options(options: Mapping[str, Any]) -> bool:
    """Whether all options that the emulator acts on have possible values."""
    try:
        EngineOptions.of(options)
    except ValueError:
        return False
    return True


def idle_engine_options(names: Iterable[str]) -> list[str]:
    """Returns the names of options that the emulator has no use for, sorted.

    Example:

    >>> idle_engine_options(["autoReport.all", "target.workers"])
    ['target.workers']
    """
    return sorted(set(names) - set(KNOWN_ENGINE_OPTIONS))


def _given(text: str) -> Mapping[str, Any]:
    """Returns the options of the environment, and warns of those that nothing acts on."""
    options = _object(text)
    known = ", ".join(sorted(KNOWN_ENGINE_OPTIONS))
    OPTION_WARNINGS.warn(
        ENVIRONMENT_VARIABLE,
        idle_engine_options(options),
        lambda names: (
            f"{ENVIRONMENT_VARIABLE} sets {names}, which the emulator has no use for. It acts on "
            f"{known}."
        ),
        stacklevel=3,
    )
    return options


def _object(text: str) -> Mapping[str, Any]:
    try:
        options = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise ValueError(
            f'{ENVIRONMENT_VARIABLE} must be JSON, such as \'{{"autoReport.all": "true"}}\'. '
            f"Received: {text!r} ({error})"
        ) from error
    if not isinstance(options, dict):
        raise ValueError(
            f"{ENVIRONMENT_VARIABLE} must be a JSON object of names and values. Received: {text!r}"
        )
    return options


def _directory(options: Mapping[str, Any], name: str) -> Path:
    value = options.get(name, ".")
    if not isinstance(value, str):
        raise ValueError(
            f"{name!r} in {ENVIRONMENT_VARIABLE} must be the path of a directory as a text, such "
            f'as "reports". Received: {value!r}'
        )
    # Unlike `Path.expanduser`, this leaves the names of users that there are not as they are.
    return Path(os.path.expanduser(value))


def _truth(options: Mapping[str, Any], name: str) -> bool:
    value = options[name]
    if not isinstance(value, str | bool) or value not in _TRUTH:
        raise ValueError(
            f'{name!r} in {ENVIRONMENT_VARIABLE} must be "true" or "false". Received: {value!r}'
        )
    return _TRUTH[value]

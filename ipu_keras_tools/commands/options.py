"""The command `ipu-keras options`, which lists the options of `IPUConfig`."""

import argparse
import enum
from typing import Any

from ipu_keras.report.text import PlainTable, rendered
from ipu_keras.settings.config_tree import AttributeMetadata, closest_option
from ipu_keras.settings.ipu_options import OPTIONS
from ipu_keras_tools.results import UsageError, print_result


def run(given: argparse.Namespace) -> int:
    """Prints the options of a category or a name, or all."""
    found = [option for option in OPTIONS if not option.is_category]
    if given.name is not None:
        name, names = given.name, [option.name for option in OPTIONS]
        found = [one for one in found if one.name == name or one.name.startswith(f"{name}.")]
        if not found:
            close = closest_option(name, names)
            raise UsageError(f"IPUConfig has no option {name!r}. The closest is {close!r}")
    effective = sum(option.effect is not None for option in found)
    table = PlainTable(
        title=f"Options of IPUConfig: {effective} of {len(found)} have an effect",
        columns=("option", "default", "state", "today"),
        rows=tuple(
            (one["option"], one["default"], one["state"], one["today"])
            for one in map(_plain, found)
        ),
        words=("default", "state", "today"),
    )
    print_result(given, [_plain(option) for option in found], rendered(table))
    return 0


def _plain(option: AttributeMetadata) -> dict[str, Any]:
    default = option.default
    return {
        "option": option.name,
        "type": option.type,
        "default": str(default) if isinstance(default, enum.Enum) else repr(default),
        "state": "no effect" if option.effect is None else "works",
        "deprecated": option.deprecated_msg,
        "meaning": option.documentation,
        "today": option.effect or option.why_idle or "",
    }

"""Every option of `IPUConfig`, by name, with values that differ from its default, and in a table.

`python tests/config_options.py` prints the tables of docs/ipu_config.md: of options, then of flags.
"""

import dataclasses
import enum
from collections.abc import Iterable

from ipu_keras.config import (
    DeviceConnectionType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
)
from ipu_keras.settings.config_tree import AttributeMetadata
from ipu_keras.settings.flags import PoplarFlags
from ipu_keras.settings.ipu_options import OPTIONS

OPTION_NAMES = [option.name for option in OPTIONS if not option.is_category]
CATEGORY_NAMES = [option.name for option in OPTIONS if option.is_category]

# A value of each type that differs from every default, and one of a near-by type.
OTHER = {
    "bool": (None, 1),
    "int": (3, True),
    "float": (0.25, 1),
    "str": (None, b"ipu2"),
    "dict": ({"flag": "1"}, [("flag", "1")]),
    "SelectionOrder": (SelectionOrder.HOOF, "HOOF"),
    "SchedulingAlgorithm": (SchedulingAlgorithm.CLUSTERING, 1),
    "DeviceConnectionType": (DeviceConnectionType.ON_DEMAND, SelectionOrder.ZIGZAG),
    "MergeRemoteBuffersBehaviour": (MergeRemoteBuffersBehaviour.MERGE, 1),
    "typing.Union[int, typing.List[int], typing.Tuple[int, ...]]": ([2, 2], 2.0),
}
OTHER_STRINGS = {
    "serialization_output_folder": "executables",
    "device_connection.version": "ipu1",
    "ipu_model.version": "ipu1",
}


def read(config, name):
    for part in name.split("."):
        config = getattr(config, part)
    return config


def write(config, name, value):
    path, _, last = name.rpartition(".")
    setattr(read(config, path) if path else config, last, value)


def other_value(option):
    if option.type == "bool":
        return not option.default
    return OTHER_STRINGS.get(option.name, OTHER[option.type][0])


def markdown_table(options: Iterable[AttributeMetadata]) -> str:
    """Returns the reference of an option table: one Markdown table row per entry."""
    rows = ["| option | type | default | meaning | today |", "|---|---|---|---|---|"]
    for option in options:
        meaning = option.documentation
        if option.deprecated:
            meaning += f" Deprecated: {option.deprecated_msg}"
        if option.is_category:
            rows.append(f"| **`{option.name}`** | category | | {meaning} | |")
        else:
            default = option.default
            shown = str(default) if isinstance(default, enum.Enum) else repr(default)
            idle = " ".join(filter(None, ["No effect: stored and checked.", option.why_idle]))
            rows.append(
                f"| `{option.name}` | `{option.type}` | `{shown}` | {meaning} "
                f"| {option.effect or idle} |"
            )
    return "\n".join(rows) + "\n"


def table_of_flags() -> str:
    """The reference of `TF_POPLAR_FLAGS`: one row of a Markdown table for each flag."""
    rows = ["| flag | type | default | meaning | changes | today |", "|---|---|---|---|---|---|"]
    for field in dataclasses.fields(PoplarFlags):
        flag, kind = field.metadata["option"], type(field.default).__name__
        rows.append(
            f"| `--{field.name}` | `{kind}` | `{field.default!r}` | {flag.documentation} "
            f"| {field.metadata['changes'] or 'nothing'} | {flag.effect or flag.why_idle} |"
        )
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(markdown_table(OPTIONS))
    print(table_of_flags())

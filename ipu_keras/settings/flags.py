"""The `TF_POPLAR_FLAGS` environment variable: its flags, their types and parsing.

Reading a flag is not acting on it: rooms that honour a flag ask for `current_flags()`, and each
flag says in its metadata what it does today.
"""

import dataclasses
import difflib
import math
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ipu_keras.settings.enumerations import SyntheticDataCategory

ENVIRONMENT_VARIABLE = "TF_POPLAR_FLAGS"


def _flag(
    default: bool | int | str,
    documentation: str,
    *,
    effect: str | None = None,
    changes: str = "",
    why_idle: str | None = None,
    minimum: int | None = None,
    choices: tuple[str, ...] = (),
    or_number: bool = False,
    items: tuple[str, ...] = (),
    is_path: bool = False,
) -> Any:
    """Returns a field whose default gives the type and whose metadata the rules.

    `changes` says what a flag with an effect changes: numbers, models, files or others.
    """
    return dataclasses.field(
        default=default,
        metadata={
            "documentation": documentation,
            "effect": effect,
            "changes": changes,
            "why_idle": why_idle,
            "minimum": minimum,
            "choices": choices,
            "or_number": or_number,
            "items": items,
            "is_path": is_path,
        },
    )


@dataclass(frozen=True, kw_only=True)
class PoplarFlags:
    """The parsed flags, one attribute each; `help_text()` documents them.

    Example:

    >>> PoplarFlags(use_ipu_model=True).use_ipu_model
    True
    """

    help: bool = _flag(
        False,
        "Print this list.",
        changes="nothing else",
        effect="Printed when a system is configured.",
    )
    use_ipu_model: bool = _flag(
        False,
        "Use the software model of an IPU instead of hardware.",
        changes="models",
        effect="running_on_ipu_model() is true; a device may have any number of IPUs, "
        "and select_ipus is refused.",
    )
    ipu_model_tiles: int = _flag(
        0,
        "Tiles of each modelled IPU; 0 means as many as the hardware has.",
        changes="models",
        effect="With --use_ipu_model, reports, and whether a program fits, are for so many tiles, "
        "whatever ipu_model.tiles_per_ipu of the configuration says.",
        minimum=0,
    )
    use_synthetic_data: bool = _flag(
        False,
        "Transfer no data between host and device; inputs stay uninitialised.",
        changes="numbers, models",
        effect="All categories below are synthetic, unless some are named. Inputs hold zeros, or "
        "what the initializer says; results that are not fetched are zeros, and queues are empty. "
        "Models of TensorFlow's programs leave out copies to the device with the category infeed, "
        "and copies from it with outfeed.",
    )
    synthetic_data_initializer: str = _flag(
        "",
        "With synthetic data, what inputs hold: 'random' or a number.",
        changes="numbers",
        effect="The number, in the type of each input; or numbers from N(0, 1), and for types that "
        "are not floating point zeros and ones, the same in all processes.",
        choices=("random",),
        or_number=True,
    )
    synthetic_data_categories: str = _flag(
        "",
        "The kinds of data that are synthetic, separated by commas; empty means all.",
        changes="numbers, models",
        effect="Datasets of infeeds are not read. Outfeeds send nothing: queues stay empty, and "
        "Keras's logs and predictions are zeros. Tables on the host are neither read nor written. "
        "Programs have variables of their own in place of the host's, which stay as they are, "
        "functions get other arguments, and return zeros. Seeds are not those that are set.",
        items=tuple(category.name.lower() for category in SyntheticDataCategory),
    )
    executable_cache_path: str = _flag(
        "",
        "Directory in which compiled executables are kept for later runs.",
        changes="files",
        effect="Keeps the graphs and cost models of programs in `<digest>.ipu_executable.json` "
        "files, for whatever asks for them: reports, other flags, a verdict on memory. By itself "
        "it has programs modelled only with the connection types PRE_COMPILE and NEVER. What XLA "
        "compiled for the host is not kept.",
        is_path=True,
    )
    log_cycle_count: int = _flag(
        -1,
        "Tile whose cycle count is logged after each execution; -1 logs none.",
        changes="logs",
        effect="Logged as a warning of the logger 'ipu_keras': the modelled cycles of the whole "
        "execution. Tiles wait for each other, so it is the same for all of them.",
        minimum=-1,
    )
    show_progress_bar: str = _flag(
        "auto",
        "Whether compilation shows a progress bar; 'auto' shows it on a terminal.",
        changes="logs",
        effect="Compilations, first runs and profiles that take longer than two seconds say on the "
        "standard error which phase they are in, on one line of a terminal. 'true' also writes "
        "lines where it is none.",
        choices=("auto", "true", "false"),
    )
    max_compilation_threads: int = _flag(
        -1,
        "Most threads that compile at the same time; -1 sets no limit.",
        minimum=-1,
        why_idle="XLA and TensorFlow choose their threads themselves.",
    )
    max_infeed_threads: int = _flag(
        -1,
        "Most threads that fetch infeed data; -1 sets no limit.",
        minimum=-1,
        why_idle="Each infeed has one thread.",
    )
    null_data_feed: bool = _flag(
        False,
        "Feed the same dummy batch over and over, to time everything but the input.",
        changes="numbers",
        effect="Infeeds leave their datasets unread and give zeros. Unlike that of synthetic data, "
        "the batch is copied to the device, so models are the same.",
    )
    dump_schedule_as_dot: bool = _flag(
        False,
        "Write the schedule of each compiled program as a Graphviz file.",
        changes="files",
        effect="Written as `<program>.schedule.dot` to `autoReport.directory` of "
        "POPLAR_ENGINE_OPTIONS, by default the current directory.",
    )
    tensor_map_file_path: str = _flag(
        "",
        "Directory for JSON files that say which tensors lie on which tiles.",
        changes="files",
        effect="Receives `<program>.tensor_map.json` of each compiled program: as modelled.",
        is_path=True,
    )
    fallback_scheduler: bool = _flag(
        False,
        "Schedule with TensorFlow's own algorithm instead of the IPU's.",
        why_idle="Models have one order: as traced, but for what frees memory.",
    )
    allow_nans: bool = _flag(
        False,
        "Accept NaN values where they would be an error.",
        why_idle="The host computes, for which NaN is a number like others.",
    )
    while_loop_brute_force_max_trip_count: int = _flag(
        128,
        "Most iterations that are tried out to find a loop's trip count.",
        minimum=0,
        why_idle="Trip counts are read from the trace.",
    )
    on_demand_device_poll_time: int = _flag(
        1000,
        "Milliseconds between attempts to attach to a busy IPU with ON_DEMAND, at least 100.",
        changes="when programs run",
        effect="Counts where PopART's devices have the IPUs.",
        minimum=100,
    )
    on_demand_device_timeout: int = _flag(
        3_600_000,
        "Milliseconds after which ON_DEMAND gives up attaching.",
        changes="whether programs run",
        effect="Then the first program is refused, where PopART's devices have the IPUs.",
        minimum=0,
    )
    sync_replica_start: bool = _flag(
        False,
        "Let replicas wait for each other before each starts its program.",
        why_idle="The host runs all replicas in one program.",
    )
    enable_hlo_verifier: bool = _flag(
        False,
        "Check the graph after each pass of the compiler, to find faults of these.",
        why_idle="There are no passes of Poplar's compiler.",
    )
    disable_poplar_version_check: bool = _flag(
        False,
        "Run with another version of Poplar than TensorFlow was built for.",
        why_idle="There is no Poplar.",
    )
    save_vertex_graph: str = _flag(
        "",
        "Directory for the vertex graph of each program.",
        is_path=True,
        why_idle="There is no graph of Poplar.",
    )
    save_interval_report: str = _flag(
        "",
        "Directory for the interval report of each program.",
        is_path=True,
        why_idle="There is no Poplar to record intervals.",
    )

    def asks_for_synthetic(self, category: SyntheticDataCategory) -> bool:
        """Whether data of a kind is to be synthetic.

        Example:

        >>> flags = parse_flags("--use_synthetic_data --synthetic_data_categories=infeed,seed")
        >>> flags.asks_for_synthetic(SyntheticDataCategory.Infeed)
        True
        >>> flags.asks_for_synthetic(SyntheticDataCategory.Outfeed)
        False
        """
        named = self.synthetic_data_categories
        return category.name.lower() in named.split(",") if named else self.use_synthetic_data


_FIELDS: Mapping[str, dataclasses.Field] = {
    field.name: field for field in dataclasses.fields(PoplarFlags)
}


def parse_flags(text: str) -> PoplarFlags:
    """Returns the flags of a text, as `TF_POPLAR_FLAGS` has them, or raises a `ValueError`.

    Flags are separated by white space and look like `--name=value`; a flag that is true or false
    may stand alone for true. Values with spaces are quoted as in a shell, and directories may
    begin with a `~` for the home directory. If a flag is repeated, the last one counts.

    Example:

    >>> flags = parse_flags("--use_ipu_model --max_infeed_threads=4")
    >>> flags.use_ipu_model, flags.max_infeed_threads
    (True, 4)
    """
    try:
        arguments = shlex.split(text)
    except ValueError as error:
        raise ValueError(
            f"{ENVIRONMENT_VARIABLE} cannot be split into flags: {error}. "
            f"Received: {text!r}. Close every quotation mark."
        ) from None
    values: dict[str, Any] = dict(_parse_flag(argument) for argument in arguments)
    return PoplarFlags(**values)


def current_flags() -> PoplarFlags:
    """Returns the flags in the environment as it is now."""
    # Read anew each time, as scripts set the variable after this module was imported.
    return parse_flags(os.environ.get(ENVIRONMENT_VARIABLE, ""))


def idle_flags(flags: PoplarFlags) -> Mapping[str, str]:
    """Returns why flags that are set have no effect, by name, for those that have none."""
    return {
        name: field.metadata["why_idle"]
        for name, field in _FIELDS.items()
        if field.metadata["effect"] is None and getattr(flags, name) != field.default
    }


def help_text() -> str:
    """Returns the list of all flags with types, defaults and what they do today."""
    lines = [f"Flags of the environment variable {ENVIRONMENT_VARIABLE}:"]
    for name, field in _FIELDS.items():
        effect = field.metadata["effect"] or f"No effect. {field.metadata['why_idle']}"
        lines.append(f"  --{name}={type(field.default).__name__} (default {field.default!r})")
        lines.append(f"      {field.metadata['documentation']} Today: {effect}")
    return "\n".join(lines)


def markdown_table() -> str:
    """Returns the reference of the flags: one row of a Markdown table for each."""
    rows = ["| flag | type | default | meaning | changes | today |", "|---|---|---|---|---|---|"]
    for name, field in _FIELDS.items():
        facts, kind = field.metadata, type(field.default).__name__
        rows.append(
            f"| `--{name}` | `{kind}` | `{field.default!r}` | {facts['documentation']} "
            f"| {facts['changes'] or 'nothing'} | {facts['effect'] or facts['why_idle']} |"
        )
    return "\n".join(rows) + "\n"


def _parse_flag(argument: str) -> tuple[str, bool | int | str]:
    head, equals, text = argument.partition("=")
    field = _FIELDS.get(head.removeprefix("--"))
    if field is None or not head.startswith("--"):
        raise ValueError(_unknown_flag(argument, head))
    value, expected = _parse_value(field, text if equals else None)
    if value is None:
        raise ValueError(
            f"The flag --{field.name} in {ENVIRONMENT_VARIABLE} must be {expected}. "
            f"Received: {argument!r}. Write --{field.name}=value."
        )
    return field.name, value


def _parse_value(field: dataclasses.Field, text: str | None) -> tuple[bool | int | str | None, str]:
    """Returns the value, or `None` if `text` is none, and the words for what is expected."""
    if isinstance(field.default, bool):
        return {None: True, "true": True, "false": False}.get(text), "'true' or 'false'"
    if isinstance(field.default, int):
        minimum = field.metadata["minimum"]
        try:
            number = int(text or "")
        except ValueError:
            # Below the minimum, so that it is refused with the same words.
            number = minimum - 1
        return (number if number >= minimum else None), f"a whole number of {minimum} or more"
    choices = field.metadata["choices"]
    if field.metadata["or_number"]:
        is_known = text in choices or _is_number(text)
        return (text if is_known else None), f"{' or '.join(map(repr, choices))} or a number"
    if choices:
        return (text if text in choices else None), f"one of {', '.join(map(repr, choices))}"
    items = field.metadata["items"]
    if items:
        is_known = text is not None and set(text.split(",")) <= set(items)
        return (text if is_known else None), f"some of {', '.join(items)}, separated by commas"
    if text and field.metadata["is_path"]:
        # A shell expands `~` only where a word begins, and not behind the `=`.
        text = os.path.expanduser(text)
    return text or None, "a text that is not empty"


def _is_number(text: str | None) -> bool:
    try:
        return math.isfinite(float(text or ""))
    except ValueError:
        return False


def _unknown_flag(argument: str, head: str) -> str:
    close = difflib.get_close_matches(head.lstrip("-").lower(), _FIELDS, n=1)
    hint = f"Did you mean '--{close[0]}'? " if close else ""
    return (
        f"Unknown flag '{head}' in {ENVIRONMENT_VARIABLE}. {hint}Received: {argument!r}. "
        f"{ENVIRONMENT_VARIABLE}=--help lists all flags."
    )

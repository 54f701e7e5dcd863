"""The `TF_POPLAR_FLAGS` environment variable: its flags, their types and parsing.

Reading a flag is not acting on it: rooms that honour a flag ask for `current_flags()`, and each
flag says in its metadata what it does today.
"""

import contextlib
import dataclasses
import functools
import math
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ipu_keras.settings import idle_reasons as why
from ipu_keras.settings.enumerations import SyntheticDataCategory
from ipu_keras.settings.option import Option, did_you_mean, idle_options, one_of_texts

ENVIRONMENT_VARIABLE = "TF_POPLAR_FLAGS"


@dataclass(frozen=True)
class _Kind:
    """What a flag takes.

    Args:
        expected: Completes the sentence "The flag must be ...".
        parse: Returns the value that a text is, which is `None` if the flag stands alone. Returns
            `None`, or raises a `ValueError`, for any other text.
    """

    expected: str
    parse: Callable[[str | None], Any]


def _from(least: int) -> _Kind:
    def parse(text: str | None) -> int | None:
        number = int(text or "")
        return number if number >= least else None

    return _Kind(f"a whole number of {least} or more", parse)


def _choice(*choices: str) -> _Kind:
    constraint = one_of_texts(*choices)
    return _Kind(constraint.expected, lambda text: text if constraint.holds(text) else None)


def _some_of(*items: str) -> _Kind:
    return _Kind(
        f"some of {', '.join(items)}, separated by commas",
        lambda text: text if text is not None and {*text.split(",")} <= {*items} else None,
    )


def _number_or(choice: str) -> _Kind:
    def parse(text: str | None) -> str | None:
        is_number = text != choice and math.isfinite(float(text or ""))
        return text if is_number or text == choice else None

    return _Kind(f"{choice!r} or a number", parse)


_SWITCH = _Kind("'true' or 'false'", {None: True, "true": True, "false": False}.get)
_TEXT = _Kind("a text that is not empty", lambda text: text or None)
# A shell expands `~` only where a word begins, and not behind the `=`.
_PATH = _Kind(_TEXT.expected, lambda text: os.path.expanduser(text) if text else None)


def _flag(
    default: bool | int | str,
    documentation: str,
    effect: str | None = None,
    *,
    changes: str = "",
    why_idle: str | None = None,
    kind: _Kind | None = None,
) -> Any:
    """Returns a field for a flag; without a kind it takes what its default is, from 0 on.

    `changes` says what a flag with an effect changes: numbers, models, files or others.
    """
    option = Option(default, documentation, effect, why_idle)
    kind = kind or {bool: _SWITCH, int: _from(0), str: _TEXT}[type(default)]
    return dataclasses.field(
        default=default, metadata={"option": option, "kind": kind, "changes": changes}
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
        kind=_number_or("random"),
    )
    synthetic_data_categories: str = _flag(
        "",
        "The kinds of data that are synthetic, separated by commas; empty means all.",
        kind=_some_of(*(category.name.lower() for category in SyntheticDataCategory)),
        changes="numbers, models",
        effect="Datasets of infeeds are not read. Outfeeds send nothing: queues stay empty, and "
        "Keras's logs and predictions are zeros. Tables on the host are neither read nor written. "
        "Programs have variables of their own in place of the host's, which stay as they are, "
        "functions get other arguments, and return zeros. Seeds are not those that are set.",
    )
    executable_cache_path: str = _flag(
        "",
        "Directory in which compiled executables are kept for later runs.",
        changes="files",
        effect="Keeps the graphs and cost models of programs in `<digest>.ipu_executable.json` "
        "files, for whatever asks for them: reports, other flags, a verdict on memory. By itself "
        "it has programs modelled only with the connection types PRE_COMPILE and NEVER. What XLA "
        "compiled for the host is not kept.",
        kind=_PATH,
    )
    log_cycle_count: int = _flag(
        -1,
        "Tile whose cycle count is logged after each execution; -1 logs none.",
        changes="logs",
        effect="Logged as a warning of the logger 'ipu_keras': the modelled cycles of the whole "
        "execution. Tiles wait for each other, so it is the same for all of them.",
        kind=_from(-1),
    )
    show_progress_bar: str = _flag(
        "auto",
        "Whether compilation shows a progress bar; 'auto' shows it on a terminal.",
        changes="logs",
        effect="Compilations, first runs and profiles that take longer than two seconds say on the "
        "standard error which phase they are in, on one line of a terminal. 'true' also writes "
        "lines where it is none.",
        kind=_choice("auto", "true", "false"),
    )
    max_compilation_threads: int = _flag(
        -1,
        "Most threads that compile at the same time; -1 sets no limit.",
        kind=_from(-1),
        why_idle="XLA and TensorFlow choose their threads themselves.",
    )
    max_infeed_threads: int = _flag(
        -1,
        "Most threads that fetch infeed data; -1 sets no limit.",
        kind=_from(-1),
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
        kind=_PATH,
    )
    fallback_scheduler: bool = _flag(
        False,
        "Schedule with TensorFlow's own algorithm instead of the IPU's.",
        why_idle=why.ONE_ORDER,
    )
    allow_nans: bool = _flag(
        False,
        "Accept NaN values where they would be an error.",
        why_idle="The host computes, for which NaN is a number like others.",
    )
    while_loop_brute_force_max_trip_count: int = _flag(
        128,
        "Most iterations that are tried out to find a loop's trip count.",
        why_idle="Trip counts are read from the trace.",
    )
    on_demand_device_poll_time: int = _flag(
        1000,
        "Milliseconds between attempts to attach to a busy IPU with ON_DEMAND, at least 100.",
        kind=_from(100),
        changes="when programs run",
        effect="Counts where PopART's devices have the IPUs.",
    )
    on_demand_device_timeout: int = _flag(
        3_600_000,
        "Milliseconds after which ON_DEMAND gives up attaching.",
        changes="whether programs run",
        effect="Then the first program is refused, where PopART's devices have the IPUs.",
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
        "", "Directory for the vertex graph of each program.", kind=_PATH, why_idle=why.NO_GRAPH
    )
    save_interval_report: str = _flag(
        "",
        "Directory for the interval report of each program.",
        kind=_PATH,
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


_FLAGS: Mapping[str, Option] = {
    field.name: field.metadata["option"] for field in dataclasses.fields(PoplarFlags)
}
_KINDS = {field.name: field.metadata["kind"] for field in dataclasses.fields(PoplarFlags)}


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
    return _flags_in(os.environ.get(ENVIRONMENT_VARIABLE, ""), os.environ.get("HOME"))


@functools.lru_cache(maxsize=1)
def _flags_in(text: str, home: str | None) -> PoplarFlags:
    """Returns the flags of a text; each short call of a model asks for the same ones.

    Args:
        home: What a `~` in the text stands for.
    """
    return parse_flags(text)


@functools.lru_cache(maxsize=1)  # as it is asked for each execution
def data_asked_for(flags: PoplarFlags) -> tuple[tuple[str, str], ...]:
    """Returns what flags say of data when programs are made; seeds are looked at when set."""
    kinds = [each for each in SyntheticDataCategory if each is not SyntheticDataCategory.Seed]
    asked = {f"synthetic {kind.name.lower()}": flags.asks_for_synthetic(kind) for kind in kinds}
    asked["--null_data_feed"] = flags.null_data_feed
    initializer = flags.synthetic_data_initializer if any(asked.values()) else ""
    named = {**asked, "--synthetic_data_initializer": initializer}
    return tuple((name, repr(value)) for name, value in named.items())


def idle_flags(flags: PoplarFlags) -> Mapping[str, str]:
    """Returns why flags that are set have no effect, by name, for those that have none."""
    return idle_options(_FLAGS, vars(flags))


def help_text() -> str:
    """Returns the list of all flags with types, defaults and what they do today."""
    lines = [f"Flags of the environment variable {ENVIRONMENT_VARIABLE}:"]
    for name, flag in _FLAGS.items():
        effect = flag.effect or f"No effect. {flag.why_idle}"
        lines.append(f"  --{name}={type(flag.default).__name__} (default {flag.default!r})")
        lines.append(f"      {flag.documentation} Today: {effect}")
    return "\n".join(lines)


def _parse_flag(argument: str) -> tuple[str, bool | int | str]:
    head, equals, text = argument.partition("=")
    name = head.removeprefix("--")
    if name not in _KINDS or not head.startswith("--"):
        hint = did_you_mean(head.lstrip("-").lower(), _KINDS, "Did you mean '--{}'? ")
        raise ValueError(
            f"Unknown flag '{head}' in {ENVIRONMENT_VARIABLE}. {hint}Received: {argument!r}. "
            f"{ENVIRONMENT_VARIABLE}=--help lists all flags."
        )
    value = None
    with contextlib.suppress(ValueError):
        value = _KINDS[name].parse(text if equals else None)
    if value is None:
        raise ValueError(
            f"The flag --{name} in {ENVIRONMENT_VARIABLE} must be {_KINDS[name].expected}. "
            f"Received: {argument!r}. Write --{name}=value."
        )
    return name, value

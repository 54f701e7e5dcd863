"""The arguments of all commands, and what `--help` says about them.

Nothing here imports `ipu_keras`, whose import takes seconds, so the names of choices are written
down once more.
"""

import argparse
from collections.abc import Callable, Collection

from ipu_keras_tools.option_values import (
    at_least_two,
    list_of,
    one_of,
    percentage,
    positive,
    power_of_two,
    proportion,
    replicas,
    spec,
    switch,
)
from ipu_keras_tools.poprun import add_options
from ipu_keras_tools.results import Parser, print_text

_SUBJECT = """SUBJECT is a file that a model was saved to (net.keras), or module:name or
file.py:name of a model, of a function of tensors, or of a function that needs no arguments and
makes one of these. SPEC is the shape and type of an argument: of a model first its inputs, then
labels and sample weights. 32x784 is float32, 32:int32 has another type, :float32 is a scalar, and
32x8+32x4 are two inputs."""

_ONNX = """SUBJECT may also be an ONNX model (net.onnx), as popart.InferenceSession would run it:
with a SPEC for each of its inputs, of which a shape alone leaves the type as it is in the file; or
with none, if the file has all shapes."""

_DESCRIPTIONS = {
    "profile": "Models a step of a model, or a call of a function, on an IPU. Exits with 1 if it "
    "does not fit.",
    "what-if": "Models a step for every combination of choices, which are lists with commas. Exits "
    "with 1 if none fits.",
    "suggest-pipeline": "Balances the layers of a model over the stages of a pipeline, by modelled "
    "cycles and memory.",
    "diff": "Says what changes from one report to another: both are files that `ipu-keras profile "
    "--json` has written, or report.json of autoReport.directory.",
    "report": "Writes the report of a step as a page, or in other forms. Exits with 1 if the "
    "step does not fit.",
    "run": "Runs a script as Python does, with the IPU names of the documents. All that follows "
    "the script is for the script.",
    "launch": "Starts the instances of an application on this machine, as `poprun` does: "
    "processes, each with its share of the replicas. All that follows the program is for it.",
    "info": "Lists the IPUs of the emulated machine, as `gc-info` does.",
    "aliases": "Writes gc-info, gc-inventory and gc-monitor into a folder: small programs that "
    "call `ipu-keras info`. Refuses if there is a command of one of these names.",
    "options": "Lists the options of IPUConfig, and what each does today.",
    "check": "Says what of scripts will not run here: names of the IPU documents that are missing, "
    "and what Keras 2 took and Keras 3 refuses. Nothing is executed. Exits with 1 if a script will "
    "fail.",
}

_EXAMPLES = {
    "profile": "ipu-keras profile net.keras 32x784 32:int32 --target bow --json > before.json",
    "what-if": "ipu-keras what-if net.keras 32x784 32:int32 --batch-size 32,64 --dtype "
    "float32,float16",
    "suggest-pipeline": "ipu-keras suggest-pipeline models.py:make 32x784 32:int32 --num-ipus 4",
    "diff": "ipu-keras diff before.json after.json --html change.html --max-growth 5",
    "report": "ipu-keras report net.keras 32x784 32:int32 --html report.html",
    "run": "ipu-keras run --modelled train.py --epochs 3",
    "launch": "ipu-keras launch -n 2 --num-replicas 4 train.py --epochs 3",
    "info": "ipu-keras info -l",
    "aliases": "ipu-keras aliases --install ~/bin",
    "options": "ipu-keras options io_tiles",
    "check": "ipu-keras check train.py models/",
}

# Options by name: the function that reads a value, and its meaning for `--help`.
_Options = dict[str, tuple[Callable[[str], object], str]]
_OPTIONS: _Options = {
    "target": (one_of("gc2", "gc200", "bow", "c600"), "gc2, gc200 (the default), bow or c600"),
    "dtype": (
        one_of("float16", "float32"),
        "float16 or float32 for all floating point numbers",
    ),
    "num-ipus": (power_of_two, "IPUs that share the layers: 1, 2, 4, ..."),
    "num-replicas": (replicas, "copies of the model, with a batch each"),
    "available-memory-proportion": (proportion, "of a tile's memory for temporaries of products"),
    "steps-per-execution": (positive, "steps between two exchanges with the host"),
    "gradient-accumulation-count": (positive, "steps between two weight updates"),
}

# What stands for values in usages, where the names of options are too long for narrow terminals.
_METAVARS: dict[Callable[[str], object], str] = {
    at_least_two: "N",
    positive: "N",
    power_of_two: "N",
    proportion: "SHARE",
    replicas: "N",
}

# Files that `report` writes, by the options that name them.
OUTPUTS = {
    "html": "one HTML page",
    "text": "text",
    "perfetto": "a trace for ui.perfetto.dev",
    "chrome-trace": "a trace for chrome://tracing",
}


def parser() -> argparse.ArgumentParser:
    """Makes the parser of `ipu-keras`, whose `command` and `module` say what to run."""
    whole = Parser(
        prog="ipu-keras", description="Runs, models and checks programs of IPUs, without an IPU."
    )
    whole.add_argument("--version", action=_Version, help="print the version of the package")
    commands = whole.add_subparsers(dest="command", metavar="command")
    for name, add in _ADDED.items():
        command = commands.add_parser(
            name,
            # The list of commands shows the first sentence, up to a colon, of each description.
            help=_DESCRIPTIONS[name].partition(".")[0].partition(":")[0],
            description=_DESCRIPTIONS[name],
            epilog=f"example: {_EXAMPLES[name]}",
        )
        command.set_defaults(module=name.replace("-", "_"))
        # The instances' output is their own, so `launch` says that it has none.
        shown = argparse.SUPPRESS if name == "launch" else "print JSON"
        command.add_argument("--json", action="store_true", help=shown)
        add(command)
    return whole


class _Version(argparse.Action):
    """Prints the installed version, which takes a tenth of a second to find, and ends."""

    def __init__(self, option_strings, dest, help=None):
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser, *_):
        # Its own import takes as long as the parser with all commands.
        from importlib.metadata import version

        print_text(f"{parser.prog} {version(parser.prog)}")
        parser.exit()


def _add_subject(command: argparse.ArgumentParser, *, may_be_onnx: bool = False) -> None:
    command.description = f"{command.description} {_SUBJECT}{f' {_ONNX}' if may_be_onnx else ''}"
    command.add_argument("subject", metavar="SUBJECT", help="a model or function")
    number = "*" if may_be_onnx else "+"
    command.add_argument(
        "specs", metavar="SPEC", type=spec, nargs=number, help="shape and type of an argument"
    )
    command.add_argument(
        "--mode",
        type=one_of("train", "test", "predict"),
        metavar="NAME",
        help="train, test or predict (of a model)",
    )


def _add_options(command: argparse.ArgumentParser, *, without: Collection[str] = ()) -> None:
    for name, (kind, meaning) in _OPTIONS.items():
        if name not in without:
            metavar = _METAVARS.get(kind, "NAME")
            command.add_argument(f"--{name}", type=kind, metavar=metavar, help=meaning)
    command.add_argument(
        "--recomputation",
        action="store_true",
        # None is an option that was not given, which is not passed on to `profile`.
        default=None,
        help="compute activations again in the backward pass",
    )


def _profile(command: argparse.ArgumentParser) -> None:
    _add_subject(command, may_be_onnx=True)
    _add_options(command)


def _what_if(command: argparse.ArgumentParser) -> None:
    _add_subject(command, may_be_onnx=True)
    lists: _Options = {"batch-size": (positive, "the first axis of all specs"), **_OPTIONS}
    for name, (kind, meaning) in lists.items():
        command.add_argument(f"--{name}", type=list_of(kind), metavar="A,B", help=meaning)
    command.add_argument(
        "--recomputation",
        type=list_of(switch),
        metavar="no,yes",
        help="compute activations again",
    )


def _suggest_pipeline(command: argparse.ArgumentParser) -> None:
    _add_subject(command)
    command.add_argument(
        "--num-ipus", type=at_least_two, metavar="N", required=True, help="stages, at least 2"
    )
    # Stages are even for any number of steps in an execution.
    _add_options(command, without=("num-ipus", "steps-per-execution"))
    command.add_argument(
        "--schedule",
        type=one_of("Grouped", "Interleaved", "Sequential"),
        metavar="NAME",
        help="Grouped (the default), Interleaved or Sequential",
    )


def _diff(command: argparse.ArgumentParser) -> None:
    command.add_argument("before", metavar="A.json")
    command.add_argument("after", metavar="B.json")
    command.add_argument(
        "--max-growth",
        type=percentage,
        metavar="PERCENT",
        help="exit with 1 if cycles per step or bytes of the fullest tile grow by more",
    )
    command.add_argument("--html", metavar="FILE", help="write one HTML page besides")


def _report(command: argparse.ArgumentParser) -> None:
    _add_subject(command, may_be_onnx=True)
    _add_options(command)
    for name, form in OUTPUTS.items():
        command.add_argument(f"--{name}", metavar="FILE", help=f"write {form}")


def _run(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--modelled",
        action="store_true",
        help="afterwards, print what each program that was compiled would cost on an IPU",
    )
    command.add_argument(
        "--tf1", action="store_true", help="as TensorFlow 1: graphs, sessions and its names"
    )
    command.add_argument("script", help="a Python file")
    arguments = command.add_argument("arguments", nargs=argparse.REMAINDER, help="for the script")
    # Without a script, only that is missing.
    arguments.required = False


def _info(command: argparse.ArgumentParser) -> None:
    form = command.add_mutually_exclusive_group()
    form.add_argument("-l", "--list-devices", action="store_true", help="as `gc-info -l`")
    form.add_argument(
        "-I", "--device-info", action="store_true", help="the hardware, as `gc-info -I`"
    )
    command.add_argument("-j", dest="json", action="store_true", help="the same as --json")
    command.add_argument("-d", "--device-id", type=int, metavar="ID", help="only this device")


def _aliases(command: argparse.ArgumentParser) -> None:
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--install", metavar="FOLDER", help="write them there")
    what.add_argument("--remove", metavar="FOLDER", help="remove those that were written there")


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", nargs="?", help="an option, or a category of them")


def _check(command: argparse.ArgumentParser) -> None:
    command.add_argument("paths", nargs="+", metavar="SCRIPT", help="a Python file, or a folder")
    command.add_argument(
        "--tf1", action="store_true", help="for `run --tf1`: with the names of TensorFlow 1"
    )


_ADDED = {
    "profile": _profile,
    "what-if": _what_if,
    "suggest-pipeline": _suggest_pipeline,
    "diff": _diff,
    "report": _report,
    "run": _run,
    "launch": add_options,
    "info": _info,
    "aliases": _aliases,
    "options": _options,
    "check": _check,
}

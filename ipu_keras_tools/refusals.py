"""Refuses what is wrong before TensorFlow is imported, which takes seconds."""

import argparse
import errno
import importlib.machinery
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from ipu_keras_tools.arguments import OUTPUTS
from ipu_keras_tools.checks.parsing import MOST_BYTES, parsed
from ipu_keras_tools.light_rooms import without_tensorflow
from ipu_keras_tools.results import UsageError

# The endings of files of models: Keras's own, and ONNX's.
KERAS = (".keras", ".h5")
ONNX = ".onnx"

# What HDF5 files begin with.
_HDF5 = b"\x89HDF\r\n\x1a\n"

# Arguments that decide nothing about an ONNX model, with the reason.
_WITHOUT_EFFECT_ON_ONNX = {
    "available_memory_proportion": "nodes of ONNX models say it, each for itself",
    "gradient_accumulation_count": "only training accumulates gradients",
    "num_ipus": "nodes of ONNX models say which IPU they are on",
    "recomputation": "only training computes anything again",
}


def refuse(given: argparse.Namespace) -> None:
    """Raises a usage error for files that are not there, or what no command could do."""
    words = vars(given)
    for path in (*words.get("paths", ()), words.get("before"), words.get("after")):
        if path is not None and not os.path.lexists(path):
            raise UsageError(f"{path} cannot be read: {os.strerror(errno.ENOENT)}")
    for path in words.get("paths", ()):
        _refuse_no_python(path)
    if "script" in words:
        _refuse_script(given)
    if "subject" in words:
        _refuse_subject(given)
    _refuse_outputs(words)


def _refuse_no_python(path: str) -> None:
    # What is not a regular file can be read only once, or not at all.
    if not os.path.isfile(path) or os.path.getsize(path) > MOST_BYTES:
        return
    try:
        # The command parses what is nested deeper than the stack.
        with suppress(MemoryError, RecursionError):
            parsed(Path(path).read_bytes(), path)
    except SyntaxError as error:
        raise UsageError(f"{path} is no Python: {error}") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _refuse_script(given: argparse.Namespace) -> None:
    if not os.path.isfile(given.script):
        raise UsageError(f"There is no script {given.script!r}")
    if given.script.endswith(".py"):  # zip archives run as well
        _refuse_no_python(given.script)
    if given.json and not given.modelled:
        raise UsageError("--json is for --modelled: what the script prints is its own")


def _refuse_subject(given: argparse.Namespace) -> None:
    text = given.subject
    owner, _, name = text.rpartition(":")
    if text.endswith((*KERAS, ONNX)):
        owner = text
    elif not owner or not name:
        raise UsageError(
            "SUBJECT must be a file that ends in .keras or .h5, or module:name or file.py:name of "
            f"a model or function. Received: {text!r}"
        )
    if owner.endswith((*KERAS, ONNX, ".py")):
        if not os.path.isfile(owner):
            raise UsageError(f"There is no file {owner!r}")
    elif not _is_module(owner.partition(".")[0]):
        raise UsageError(f"There is no module {owner!r}")
    if owner.endswith(".py"):
        _refuse_no_python(owner)
    if text.endswith(KERAS):
        _refuse_no_archive(text)
    if text.endswith(ONNX):
        _refuse_for_onnx(given)
    elif not given.specs:
        raise UsageError("SPEC is missing: the shape and type of each argument, such as 32x784")


def _refuse_no_archive(path: str) -> None:
    try:
        with open(path, "rb") as file:
            is_hdf5 = file.read(len(_HDF5)) == _HDF5
        found = is_hdf5 if path.endswith(".h5") else is_zipfile(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if not found:
        kind = "HDF5 file" if path.endswith(".h5") else "zip archive"
        raise UsageError(f"{path} is no {kind}, as `model.save({path!r})` writes it")


def _refuse_for_onnx(given: argparse.Namespace) -> None:
    if given.command == "suggest-pipeline":
        raise UsageError(
            f"{given.command} takes no ONNX model: `profile`, `what-if` and `report` do."
        )
    for name, reason in _WITHOUT_EFFECT_ON_ONNX.items():
        if getattr(given, name) is not None:
            raise UsageError(
                f"--{name.replace('_', '-')} means nothing for an ONNX model: {reason}"
            )
    if given.mode not in (None, "predict"):
        raise UsageError(f"--mode of an ONNX model can only be predict. Received: {given.mode}")
    for dtype in given.dtype if isinstance(given.dtype, list) else [given.dtype]:
        if dtype not in (None, "float16"):
            raise UsageError(
                "--dtype of an ONNX model can only be float16; without it, the model has the "
                f"types of its file. Received: {dtype}"
            )


def _refuse_outputs(words: dict[str, Any]) -> None:
    named = (words.get(name.replace("-", "_")) for name in OUTPUTS)
    paths = [path for path in named if path is not None]
    if words["command"] == "report" and not paths:
        names = ", ".join(f"--{name}" for name in OUTPUTS)
        raise UsageError(f"say what to write, with one of {names} and the name of a file")
    if not paths:
        return
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise UsageError(f"each form needs a file of its own. Received: {', '.join(paths)}")
    with without_tensorflow():
        from ipu_keras.store.atomic_files import check_place
    for path in paths:
        try:
            check_place(Path(path))
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error}") from error


def _is_module(name: str) -> bool:
    """Whether there is a module of this name, for which nothing is imported."""
    path = [os.getcwd(), *sys.path]
    builtin = name in sys.builtin_module_names or name in sys.modules
    return builtin or importlib.machinery.PathFinder.find_spec(name, path) is not None

"""Refuses files that are not there before TensorFlow is imported, which takes seconds."""

import argparse
import errno
import importlib.util
import os
import sys
from pathlib import Path

from ipu_keras_tools.results import UsageError

# The endings of files of models: Keras's own, and ONNX's.
KERAS = (".keras", ".h5")
ONNX = ".onnx"


def refuse_missing(given: argparse.Namespace) -> None:
    """Raises a usage error if a file or module is not there that a command was given."""
    words = vars(given)
    for path in (*words.get("paths", ()), words.get("before"), words.get("after")):
        if path is not None and not os.path.lexists(path):
            raise UsageError(f"{path} cannot be read: {os.strerror(errno.ENOENT)}")
    if "script" in words and not Path(given.script).is_file():
        raise UsageError(f"There is no script {given.script!r}")
    if "subject" in words:
        _refuse_missing_subject(given)


def _refuse_missing_subject(given: argparse.Namespace) -> None:
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
        if not Path(owner).is_file():
            raise UsageError(f"There is no file {owner!r}")
    elif not _is_module(owner.partition(".")[0]):
        raise UsageError(f"There is no module {owner!r}")
    if not given.specs and not text.endswith(ONNX):
        raise UsageError("SPEC is missing: the shape and type of each argument, such as 32x784")


def _is_module(name: str) -> bool:
    """Whether there is a module of this name, for which nothing is imported."""
    path = [os.getcwd(), *sys.path]
    builtin = name in sys.builtin_module_names or name in sys.modules
    return builtin or importlib.machinery.PathFinder.find_spec(name, path) is not None

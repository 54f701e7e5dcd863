"""Turns words of a command line into the models, functions and specs that commands model."""

import importlib
import importlib.util
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf

from ipu_keras_tools.option_values import SPEC
from ipu_keras_tools.refusals import KERAS
from ipu_keras_tools.results import UsageError


def subject_of(text: str) -> Any:
    """Finds a model or function by a file, or by `module:name` or `file.py:name`.

    A function that needs no arguments is called for the model or function that it makes, without
    weights if it asks which. `refusals.refuse` has looked whether it is there.
    """
    if text.endswith(KERAS):
        return _loaded(text)
    module_name, _, name = text.rpartition(":")
    found: Any = _module(module_name)
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{module_name} has no {name!r}")
        found = getattr(found, part)
    if isinstance(found, keras.Model):
        return found
    if not callable(found):
        raise UsageError(
            f"{text} must be a model, a function of tensors, or a function that needs no "
            f"arguments and makes one. Received: {found!r} of type {type(found).__name__}"
        )
    parameters = inspect.signature(found).parameters.values()
    takes_tensors = any(
        one.default is one.empty and one.kind != one.VAR_KEYWORD for one in parameters
    )
    if takes_tensors:
        return found
    # Those of `keras.applications` would be downloaded, and no step costs more or less for them.
    without = {"weights": None} if any(one.name == "weights" for one in parameters) else {}
    return found(**without)


def spec_of(text: str) -> Any:
    """Reads a spec such as `32x784`, `32:int32` or `:float32`; `32x8+32x4` is a tuple of two.

    Example:

    >>> spec_of("32x784:float16")
    TensorSpec(shape=(32, 784), dtype=tf.float16, name=None)
    """
    if "+" in text:
        return tuple(spec_of(part) for part in text.split("+"))
    match = SPEC.fullmatch(text)
    assert match is not None  # `option_values.spec` has looked
    shape = [int(size) for size in match["shape"].split("x") if size]
    try:
        return tf.TensorSpec(shape, tf.as_dtype(match["dtype"] or "float32"))
    except TypeError as error:
        raise UsageError(f"TensorFlow has no type {match['dtype']!r}") from error


def _loaded(text: str) -> keras.Model:
    try:
        return keras.saving.load_model(text)
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise UsageError(f"The model in {text} cannot be loaded: {error}") from error


def _module(name: str) -> ModuleType:
    """Imports a module, which is looked for in the command's folder first, or a file."""
    if not name.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            # If the module is there and one that it imports is missing, the traceback says more.
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise UsageError(f"There is no module {name!r}") from error
    path = Path(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    sys.path.insert(0, str(path.resolve().parent))
    module = importlib.util.module_from_spec(spec)
    # As imports do, before it runs: dataclasses and pickles look their module up by its name.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module

"""What users say about programs that they have modelled: checks, and the options made of it."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.machine.target import DEFAULT_TARGET, TARGETS, Target, target_named
from ipu_keras.settings.arguments import positive_integer
from ipu_keras.settings.option import did_you_mean
from ipu_keras.settings.option_warnings import OPTION_WARNINGS
from ipu_keras.settings.pipeline_choices import MODELLED_POPLAR_OPTIONS, idle_poplar_options

MODEL_OPTIONS = tuple(option.name for option in fields(CostOptions))
_DTYPES = ("dtype", "gradient_accumulation_dtype")


def target_of(target: str | Target | None) -> Target:
    """Returns the hardware of a name, the default for `None`, or the `Target` that is given."""
    target = DEFAULT_TARGET if target is None else target
    if isinstance(target, str):
        return target_named(target)
    if not isinstance(target, Target):
        raise ValueError(
            f"`target` must be one of {', '.join(TARGETS)}, or a Target. Received: "
            f"target={target!r}"
        )
    return target


def check_names(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuses options whose names are not known, and suggests similar ones."""
    for name, value in given.items():
        if name not in known:
            hint = did_you_mean(name, known, "Did you mean `{}`? ")
            raise TypeError(
                f"Unknown option `{name}`. {hint}Received: {name}={value!r}. "
                f"The options are {', '.join(known)}."
            )


def checked_batch_size(size: Any) -> int:
    """Returns a number of samples that a user gave, as Python's own kind of integer."""
    return positive_integer("batch_size", size)


def listed(name: str, values: Any) -> list[Any]:
    """Returns the values of a choice, which a user gave as a list, range, array or single value."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    found = list(values) if isinstance(values, list | tuple | range) else [values]
    if not found:
        raise ValueError(f"`{name}` needs at least one value. Received: {name}={values!r}")
    return found


def check_options(given: Mapping[str, Any]) -> None:
    """Refuses what `model_of` would, for callers that change or trace something before that."""
    options = dict(given)
    target = target_of(options.pop("target", None))
    target.without_tiles(model_options(options).num_io_tiles)


def warn_of_idle(given: Mapping[str, Any], *, stacklevel: int = 3) -> None:
    """Warns of Poplar's options that a user gave, single or in lists, and that are not modelled.

    Args:
        stacklevel: The level for `warnings.warn`; the default is that of the caller's caller.
    """
    idle = []
    for name in ("convolution_options", "matmul_options"):
        choices = given.get(name)
        listed = choices if isinstance(choices, list) else [choices]
        flags = idle_poplar_options(flag for one in listed for flag in one or ())
        idle += [f"{flag} in `{name}`" for flag in flags]
    OPTION_WARNINGS.warn(
        "profile",
        idle,
        lambda names: (
            f"These options of Poplar have no model, and no effect: {names}. Those that have one "
            f"are {' and '.join(MODELLED_POPLAR_OPTIONS)}."
        ),
        stacklevel=stacklevel,
    )


def with_dtype_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options with names in place of TensorFlow's and NumPy's types.

    Values that are no types are left to the checks of `CostOptions`.
    """
    options = dict(given)
    for name in set(_DTYPES) & set(given):
        with contextlib.suppress(TypeError):
            # TensorFlow takes numbers and arrays too, which nobody means as a type.
            if isinstance(given[name], str | type | np.dtype | tf.DType):
                options[name] = tf.as_dtype(given[name]).name
    return options


def model_options(given: Mapping[str, Any]) -> CostOptions:
    """Returns the options of a model."""
    check_names(given, MODEL_OPTIONS)
    # An execution has to end with a weight update, so by default it has the steps of one.
    steps = given.get("gradient_accumulation_count", 1)
    return CostOptions(**with_dtype_names({"steps_per_execution": steps, **given}))

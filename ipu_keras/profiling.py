"""What a TensorFlow function would cost on an IPU, without running it."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.compiler.modelling import ModelOptions, model_graph
from ipu_keras.report import Report
from ipu_keras.target import DEFAULT_TARGET, Target, target_named
from ipu_keras.tracing import hlo_graph


def profile_function(
    function: Callable[..., Any],
    *specs: Any,
    target: str | Target = DEFAULT_TARGET,
    name: str | None = None,
    **options: Any,
) -> Report:
    """Models one call of a function; nothing of it is executed.

    Args:
        function: A Python function of tensors, or a `tf.function`.
        *specs: A `tf.TensorSpec` for each argument, or structures of them.
        target: Name of the hardware, or a `Target`.
        name: What the report calls it; defaults to the function's name.
        **options: Of `ModelOptions`.

    Returns:
        The report.

    Raises:
        LoweringError: XLA cannot compile an operation of the function.
        ValueError: No such target, or an option out of its range.
        TypeError: No such option.
    """
    model_options = ModelOptions(**options)
    hardware = target_named(target) if isinstance(target, str) else target
    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    if name is None:
        name = str(getattr(function, "__name__", "function"))
    return Report.of(model_graph(name, hlo_graph(traced), hardware, model_options))

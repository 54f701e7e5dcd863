"""Convolutions that are planned together and run at the same time."""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from ipu_keras.hooks.tensorflow.nn_operations import surround_convolutions
from ipu_keras.ops.argument_checks import check_tensor
from ipu_keras.tracing.poplar_operation import poplar_operation

# PopLibs' options of multi-convolutions. What they do to a plan is not modelled, except for
# the type of the plan: serial convolutions are those of no multi-convolution.
_PLAN_TYPES = ("parallel", "serial")
_NOT_MODELLED = ("perConvReservedTiles", "cycleBackOff")

# The scope of the multi-convolution that is being traced; empty outside.
_scope: ContextVar[str] = ContextVar("multi_convolution_scope", default="")


def multi_conv(func: Callable | None = None, options: Mapping[str, Any] | None = None) -> Callable:
    """Runs the convolutions of a function at the same time, as one operation.

    An IPU then divides its tiles among them, which leaves fewer idle if each convolution is
    small. Their gradients run at the same time, too. All other operations of the function run as
    they would without it. A convolution that takes a result of another one of the function has
    to wait for it, and is part of a second such operation.

    Values are those of the function. What changes is the program, so it works in a
    `tf.function`, in the `call` of a Keras layer or model, and in a graph. Tensors of a functional
    model that is being made are refused: that model would call the layers one by one.

    Args:
        func: A function that takes tensors, by position, and returns at least one.
        options: PopLibs' options of multi-convolutions: `planType`, which is `"parallel"` or
            `"serial"`, `perConvReservedTiles` and `cycleBackOff`. With a serial plan, the
            convolutions run one after the other. The others direct the planner in ways that
            are not modelled, which a warning says.

    Returns:
        The function to call instead; without `func`, a decorator.

    Raises:
        TypeError: `func` cannot be called, or `options` is not a dictionary.
        ValueError: There is no such option, or the type of the plan is unknown; later on, an
            argument cannot be made a tensor, or the function returned none.

    Example:

    >>> @multi_conv
    ... def blur(left, right):
    ...     kernel = tf.fill((3, 3, 1, 1), 1 / 9)
    ...     return [tf.nn.conv2d(image, kernel, 1, "VALID") for image in (left, right)]
    >>> [float(tf.squeeze(image)) for image in blur(tf.ones((1, 3, 3, 1)), tf.zeros((1, 3, 3, 1)))]
    [1.0, 0.0]
    """
    is_parallel = _check_options(options)
    if func is None:
        return functools.partial(multi_conv, options=options)
    if not callable(func):
        raise TypeError(
            "`func` must be a function of tensors. To set options, name them: "
            f"`multi_conv(options=...)`. Received: func={func!r}"
        )

    @functools.wraps(func)
    def together(*args: Any) -> Any:
        tensors = [check_tensor("args", arg) for arg in args]
        with _convolutions_together() if is_parallel else contextlib.nullcontext():
            results = func(*tensors)
        if not any(tf.is_tensor(result) for result in tf.nest.flatten(results)):
            raise ValueError(
                "`func`, a function of `multi_conv`, must return at least one tensor. "
                f"Received: {results!r} from {func!r}"
            )
        return results

    return together


@contextlib.contextmanager
def _convolutions_together() -> Iterator[None]:
    """Names all convolutions that are traced within as parts of one operation."""
    # The hook goes in with the first use, not with the import.
    surround_convolutions(_scope.get, _in_scope)
    with poplar_operation("MultiConv"):
        scope = tf.get_current_name_scope()
    token = _scope.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)


def _in_scope(scope: str, convolution: Callable, args: tuple, kwargs: dict) -> Any:
    """Calls a convolution of TensorFlow's as a part of a multi-convolution."""
    # Only the last part of a name: one that ends in a slash would be absolute, and leave the
    # scope of the multi-convolution.
    name = (kwargs.get("name") or "").rstrip("/").rpartition("/")[2]
    # A name with a slash enters that very scope, from within any other. TensorFlow names the
    # gradient of the convolution after it, too.
    with tf.name_scope(f"{scope}/"):
        return convolution(*args, **{**kwargs, "name": name or None})


def _check_options(options: Mapping[str, Any] | None) -> bool:
    """Whether the options let convolutions run at the same time."""
    if options is None:
        return True
    if not isinstance(options, Mapping):
        raise TypeError(
            "`options` must be a dictionary of PopLibs' options of multi-convolutions. "
            f"Received: options={options!r}"
        )
    for name in options:
        if name != "planType" and name not in _NOT_MODELLED:
            known = ", ".join(("planType", *_NOT_MODELLED))
            raise ValueError(
                f"Multi-convolutions have the options {known}. Received: options={dict(options)}"
            )
    plan_type = options.get("planType", "parallel")
    if plan_type not in _PLAN_TYPES:
        raise ValueError(
            f"`planType` of `options` must be one of {', '.join(_PLAN_TYPES)}. "
            f"Received: planType={plan_type!r}"
        )
    ignored = [name for name in _NOT_MODELLED if name in options]
    if ignored:
        warnings.warn(
            f"What {' and '.join(ignored)} of a multi-convolution cost or save is not modelled: "
            "reports are as without.",
            stacklevel=3,
        )
    return plan_type == "parallel"

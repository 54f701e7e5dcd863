"""Functions whose code is on an IPU once, however often they are called."""

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.ops.argument_checks import check_flag
from ipu_keras.program import OUTLINED_SCOPE

# Characters that TensorFlow refuses in names of scopes, such as the brackets of "<lambda>".
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


def outlined_function(
    func: Callable[..., Any] | None = None,
    unique_sharding: bool = False,
    keep_input_layouts: bool | None = None,
    name: str | None = None,
) -> Callable[..., Any]:
    """Makes all calls of a function share their code on an IPU.

    Values are those of the function. In a report, calls with tensors of the same shapes have
    their code and vertices in memory once; that an IPU copies the arguments to where the code
    expects them is not counted. A function that draws random numbers, writes variables or runs
    on the host is inlined: it shares nothing. It can be used as a decorator, with arguments or
    without.

    Args:
        func: A Python function of tensors, without keyword arguments, that returns at least
            one. Other values go in through a closure or `functools.partial`.
        unique_sharding: Whether all arguments are first copied to one IPU. `True` has no effect:
            sharded programs have no such choice here, which gives a warning.
        keep_input_layouts: Whether arguments keep their layout on the tiles, or get the one
            that the function would choose; `None` leaves it to the compiler. `True` and `False`
            have no effect: there is one layout for all tensors here, which gives a warning.
        name: Name in reports. Defaults to the function's name.

    Returns:
        A function that converts its arguments to tensors and computes the same.

    Raises:
        TypeError: `func` is not a function, or a choice not a boolean; or the function that is
            returned gets keyword arguments.
        ValueError: The function that is returned is called, and `func` returns no tensor.

    Example:

    >>> @outlined_function
    ... def block(x, kernel):
    ...     return tf.nn.relu(tf.matmul(x, kernel))
    >>> block([[1.0, -1.0]], tf.eye(2)).numpy()
    array([[1., 0.]], dtype=float32)
    """
    if func is None:
        return functools.partial(
            outlined_function,
            unique_sharding=unique_sharding,
            keep_input_layouts=keep_input_layouts,
            name=name,
        )
    if not callable(func):
        raise TypeError(f"`func` must be a function of tensors. Received: func={func!r}")
    unique_sharding = check_flag("unique_sharding", unique_sharding)
    if keep_input_layouts is not None:
        keep_input_layouts = check_flag("keep_input_layouts", keep_input_layouts)
    if unique_sharding or keep_input_layouts is not None:
        warnings.warn(
            "Neither `unique_sharding` nor `keep_input_layouts` of `outlined_function` has an "
            "effect: how arguments lie on tiles and IPUs is not modelled. Leave them out. "
            f"Received: unique_sharding={unique_sharding}, "
            f"keep_input_layouts={keep_input_layouts}",
            stacklevel=2,
        )
    title = str(name or getattr(func, "__name__", type(func).__name__))
    scope = OUTLINED_SCOPE + _NOT_IN_NAMES.sub("", title)

    @functools.wraps(func)
    def outlined(*args: Any) -> Any:
        tensors = [tf.convert_to_tensor(argument) for argument in args]
        with tf.name_scope(scope):
            results = func(*tensors)
            if all(result is None for result in tf.nest.flatten(results)):
                raise ValueError(
                    "`func`, if outlined, must return at least one tensor: what it computes "
                    f"cannot be used otherwise. Received: {results!r} from {title!r}"
                )
            return tf.nest.map_structure(_tensor, results)

    return outlined


def _tensor(result: Any) -> Any:
    return None if result is None else tf.convert_to_tensor(result)

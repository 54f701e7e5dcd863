"""Calls the functions that users give as the bodies of loops and as stages of pipelines."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.settings.argument_errors import converted, noted


def as_list(value: Any) -> list[Any]:
    """What a user returned or gave, as a list: nothing, one thing, or several."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def checked_function(argument: str, value: Any) -> Callable[..., Any]:
    """Checks a function of a user's.

    Args:
        argument: What it was given as, for the error.
        value: It. A class makes objects, which is not what is wanted of it.

    Raises:
        TypeError: It is none.
    """
    if not callable(value) or isinstance(value, type):
        raise TypeError(
            f"`{argument}` must be a function. "
            f"Received: {argument}={value!r} of type {type(value).__name__}"
        )
    return value


def tensors_of(argument: str, values: Any) -> list[tf.Tensor]:
    """What a user gave, as tensors: nothing, one thing, or several.

    Args:
        argument: What it was given as, for the error.
        values: It.

    Raises:
        TypeError: One is no tensor, and none can be made of it.
        ValueError: As that.
    """
    return [converted(argument, tf.convert_to_tensor, value) for value in as_list(values)]


def call_with_element(
    what: str, function: Callable[..., Any], inputs: Sequence[Any], element: Any = ()
) -> Any:
    """Calls a function with its inputs and the element of a dataset.

    Args:
        what: What errors call it, such as `"loop body"`.
        function: A user's.
        inputs: What it takes first.
        element: Its parts come after these, by name if it is a dict, or a tuple of nothing else.

    Raises:
        TypeError: It cannot be called with so many.
    """
    if isinstance(element, tuple) and len(element) == 1:
        (element,) = element
    is_named = isinstance(element, Mapping)
    named = dict(element) if is_named else {}
    given = [*inputs, *([] if is_named else as_list(element))]
    check_arguments(what, function, given, named)
    return function(*given, **named)


def tensors_then_operations(
    returned: Any, error: str
) -> tuple[list[tf.Tensor], list[tf.Operation]]:
    """What a body returned: tensors, and then operations.

    Args:
        returned: By the user's function.
        error: What is said if it is anything else.

    Raises:
        ValueError: An operation comes before a tensor, or it is neither.
    """
    values = as_list(returned)
    is_operation = [isinstance(value, tf.Operation) for value in values]
    num_tensors = is_operation.index(True) if True in is_operation else len(values)
    if not all(is_operation[num_tensors:]):
        raise noted(ValueError(error), f"Received: {values}")
    try:
        return list(map(tf.convert_to_tensor, values[:num_tensors])), values[num_tensors:]
    except (TypeError, ValueError) as reason:
        raise noted(ValueError(error), f"Received: {values}") from reason


def check_arguments(
    what: str, function: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]
) -> None:
    """Checks that a function of a user's can be called.

    Args:
        what: What errors call it.
        function: It.
        given: Arguments by position.
        named: Arguments by name.

    Raises:
        TypeError: It cannot.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # written in another language
    try:
        signature.bind(*given, **named)
    except TypeError as reason:
        described = [getattr(value, "name", value) for value in (*given, *named.values())]
        raise TypeError(
            f"Supplied {what} function cannot be called with the specified inputs. You specified "
            f"{len(described)} inputs: {described}, but the {what} takes {signature}. Its "
            "parameters are what is handed on, then the parts of an element of `infeed_queue`, "
            f"by name if that is a dict ({reason})."
        ) from None

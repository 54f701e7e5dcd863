"""Calls the functions that users give as the bodies of loops and as stages of pipelines."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.settings.arguments import converted, noted


def as_list(value: Any) -> list[Any]:
    """Returns what a user returned or gave as a list: nothing, one thing, or several."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def checked_function(argument: str, value: Any) -> Callable[..., Any]:
    """Returns a user's function, or raises a `TypeError`; a class is none, as it makes objects."""
    if not callable(value) or isinstance(value, type):
        raise TypeError(
            f"`{argument}` must be a function. "
            f"Received: {argument}={value!r} of type {type(value).__name__}"
        )
    return value


def tensors_of(argument: str, values: Any) -> list[tf.Tensor]:
    """Returns what a user gave for the named `argument` as tensors: none, one or several."""
    return [converted(argument, tf.convert_to_tensor, value) for value in as_list(values)]


def call_with_element(
    what: str, function: Callable[..., Any], inputs: Sequence[Any], element: Any = ()
) -> Any:
    """Calls a user's function with its inputs, and then the parts of an element of a dataset.

    These are given by name if the element is a dict, or a tuple of one dict.
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
    """Takes apart what a body returned: tensors, and then operations.

    Raises a `ValueError` with the text `error` for anything else.
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
    """Raises a `TypeError` if a user's function, of the kind `what`, cannot be called like this."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # it is written in another language
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

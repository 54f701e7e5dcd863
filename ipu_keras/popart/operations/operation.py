"""Declares an operation of ONNX: a function of tensors, and the form in which it wants them.

`Evaluation` brings tensors into that form; the functions themselves know no graph.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ipu_keras.popart.model.graph import AI_GRAPHCORE, AI_ONNX

# The keyword by which a function asks for the `Context` of its node.
CONTEXT = "context"


@dataclass(frozen=True)
class Operation:
    """One operation, from one version of its domain up to the next that changes its meaning.

    Args:
        kind: The ONNX operator type, such as `"LeakyRelu"`.
        function: Computes the operation. Positional parameters are the inputs, `None` where an
            optional one is left out; keyword-only parameters are the attributes, with an
            underscore behind names that Python reserves. It returns a tensor, an array if the
            result is known while tracing, a tuple of several results, or a list for a sequence.
            If an attribute is a graph, it takes and may return `Value`s or lists of them.
        since: The first version of the domain in which the operation means this.
        static: Inputs that must be known while tracing; the function gets arrays.
        images: Inputs that the function wants with channels last.
        kernels: Inputs that the function wants as weights `(..., in, out)`.
        num_images: How many of the first results have channels last.
        elementwise: Whether each element of the only result depends only on the elements at the
            same place, so that the order of axes does not matter.
        axis: The attribute or static input that names one or more axes, if images may keep
            channels last for this operation. Results may lack these axes.
        any_order: Whether the function takes images with channels last as they are. It finds
            axes by `context.order`, and its results have that order unless they are `Value`s.
            Inputs of lower rank are as in the model.
        is_random: Whether it draws random numbers, so that it is never computed while tracing.
        has_effects: Whether it does something when it runs, so that it is never computed while
            tracing.
        sizes_by_values: Whether the sizes of results depend on values. Programs of IPUs are
            static, so it is computed while tracing wherever its inputs are known.
        recurs: Whether the inputs before a variadic one form a group that may be repeated.
        is_expanded: Whether the nodes of ONNX's own definition are computed in its place.
    """

    kind: str
    function: Callable[..., Any]
    since: int = 1
    domain: str = AI_ONNX
    static: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()
    kernels: frozenset[str] = frozenset()
    num_images: int = 0
    elementwise: bool = False
    axis: str | None = None
    any_order: bool = False
    is_random: bool = False
    has_effects: bool = False
    sizes_by_values: bool = False
    recurs: bool = False
    is_expanded: bool = False

    def __call__(self, *inputs: Any, **attributes: Any) -> Any:
        return self.function(*inputs, **attributes)

    @functools.cached_property
    def parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function).parameters.values())

    @functools.cached_property
    def inputs(self) -> list[inspect.Parameter]:
        """The parameters that are inputs; the last may be variadic."""
        return [p for p in self.parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]

    def input_names(self, count: int) -> list[str]:
        """Returns the names of the parameters that `count` inputs belong to."""
        names = [parameter.name for parameter in self.inputs]
        if self.recurs:
            names = names[:-1] * math.ceil(count / (len(names) - 1))
        return names[:count] + names[-1:] * (count - len(names))

    @functools.cached_property
    def attributes(self) -> dict[str, inspect.Parameter]:
        """The parameters that are attributes, by their names in ONNX."""
        named = {p.name: p for p in self.parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
        named.pop(CONTEXT, None)
        return {name.rstrip("_"): parameter for name, parameter in named.items()}

    @property
    def keeps_order(self) -> bool:
        """Whether images may keep channels last for this operation."""
        return self.elementwise or self.any_order or self.axis is not None

    @functools.cached_property
    def wants_context(self) -> bool:
        return any(parameter.name == CONTEXT for parameter in self.parameters)


def operation(
    kind: str,
    *,
    since: int = 1,
    domain: str = AI_ONNX,
    static: Iterable[str] = (),
    images: Iterable[str] = (),
    kernels: Iterable[str] = (),
    num_images: int = 0,
    elementwise: bool = False,
    axis: str | None = None,
    any_order: bool = False,
    is_random: bool = False,
    has_effects: bool = False,
    sizes_by_values: bool = False,
    recurs: bool = False,
) -> Callable[[Callable[..., Any]], Operation]:
    """Makes an `Operation` of the decorated function; arguments are the fields of that class.

    Example:

    >>> import tensorflow as tf
    >>> @operation("LeakyRelu", since=6, elementwise=True)
    ... def leaky_relu(x, *, alpha):
    ...     return tf.nn.leaky_relu(x, alpha)
    >>> leaky_relu(tf.constant([-2.0, 2.0]), alpha=0.5).numpy()
    array([-1.,  2.], dtype=float32)
    """

    def made(function: Callable[..., Any]) -> Operation:
        return Operation(
            kind,
            function,
            since,
            domain,
            frozenset(static),
            frozenset(images),
            frozenset(kernels),
            num_images,
            elementwise,
            axis,
            any_order,
            is_random,
            has_effects,
            sizes_by_values,
            recurs,
        )

    return made


graphcore_operation = functools.partial(operation, domain=AI_GRAPHCORE)

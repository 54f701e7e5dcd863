"""How an operation of ONNX is written down: a function of tensors, and what it wants them to be."""

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ipu_keras.popart.model.graph import AI_GRAPHCORE, AI_ONNX

# The keyword by which a function asks for the `Context` of its node.
CONTEXT = "context"


@dataclass(frozen=True)
class Operation:
    """One operation, from one version of its domain on.

    Args:
        kind: Such as `"LeakyRelu"`.
        function: Computes it. Its positional parameters are the inputs, `None` where an optional
            one is left out; keyword-only ones are the attributes, with an underscore behind
            names that are Python's own. It returns a tensor, or an array where the result is
            known; a tuple if it has several results; a list for a sequence. With graphs among
            its attributes, it takes `Value`s, or lists of them, and may return such too.
        since: The first version of its domain in which it is so.
        domain: Whose it is.
        static: Inputs that have to be known while tracing; they are arrays.
        images: Inputs whose channels are wanted last.
        kernels: Inputs wanted as weights `(..., in, out)`.
        num_images: How many of the first results have channels last.
        elementwise: Whether each element of the only result depends on the elements at its
            place, so that the order of axes does not matter.
        axis: The attribute, or the static input, that names an axis, or a list of them, if images
            may stay as they are for it. Results may lack these axes.
        any_order: Whether its function takes images with channels last as they are: it asks
            `context.order` where axes are, and its results have that order too, unless it
            returns a `Value`. Inputs of less axes are as in the model.
        is_random: Whether it draws random numbers, so that it is never computed while tracing.
        has_effects: Whether it does something when it runs, so that it is never computed before.
        sizes_by_values: Whether the sizes of its results depend on values. Programs of IPUs are
            static, so it is computed while tracing wherever what it takes is known.
        recurs: Whether the inputs before a variadic one are a group that may come several times.
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
        """Computes it."""
        return self.function(*inputs, **attributes)

    @functools.cached_property
    def parameters(self) -> list[inspect.Parameter]:
        """Those of the function."""
        return list(inspect.signature(self.function).parameters.values())

    @functools.cached_property
    def inputs(self) -> list[inspect.Parameter]:
        """Parameters that are inputs; the last may stand for any number."""
        return [p for p in self.parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]

    @functools.cached_property
    def attributes(self) -> dict[str, inspect.Parameter]:
        """Parameters that are attributes, by their names in ONNX."""
        named = {p.name: p for p in self.parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
        named.pop(CONTEXT, None)
        return {name.rstrip("_"): parameter for name, parameter in named.items()}

    @property
    def keeps_order(self) -> bool:
        """Whether images may stay as they are for it."""
        return self.elementwise or self.any_order or self.axis is not None

    @functools.cached_property
    def wants_context(self) -> bool:
        """Whether the function takes the `Context` of its node."""
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
    """Makes an `Operation` of a function; the arguments are those of that class.

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


# Of Graphcore's own domain.
graphcore_operation = functools.partial(operation, domain=AI_GRAPHCORE)

"""Checks the arguments of `multiconv`, and flattens them, as a node has no lists of lists."""

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import AttributeProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.attributes import attribute_of, attribute_of_any

# Each convolution has images, weights and a bias.
_INPUTS = 3


def multiconv_inputs(args: Any) -> list[str]:
    """Returns the inputs of the node, three for each convolution, empty for no bias."""
    is_list = isinstance(args, Sequence) and not isinstance(args, str) and len(args) > 0
    if not is_list or not all(isinstance(each, list | tuple) for each in args):
        raise popart_exception(
            "`args` of MultiConv has a list [images, weights] or [images, weights, bias] for each "
            f"convolution. Received: args={args!r}"
        )
    for each in args:
        if not _INPUTS - 1 <= len(each) <= _INPUTS:
            raise popart_exception(
                f"MultiConv has invalid number of inputs {len(each)} of a convolution. Must be "
                f"between {_INPUTS - 1}..{_INPUTS}. Received: {each!r}"
            )
    return [id_ for each in args for id_ in (*each, "")[:_INPUTS]]


def multiconv_attributes(
    number: int,
    lists: Mapping[str, Sequence[Sequence[int]]],
    values: Mapping[str, Sequence[Any]],
    others: Mapping[str, Any],
) -> list[AttributeProto]:
    """Returns the attributes of a node of `number` convolutions, by name.

    `lists` and `values` have an entry for each convolution, or none; `others` have one for all.
    """
    for name, each in {**lists, **values}.items():
        if not isinstance(each, Sequence) or isinstance(each, str) or len(each) not in (0, number):
            raise popart_exception(
                f"`{name}` has to be empty, or to have an entry for each of the {number} "
                f"convolutions. Received: {each!r}"
            )
    flat = []
    for name, each in lists.items():
        several = [attribute_of(name, one, AttributeProto.INTS).ints for one in each]
        if several:
            numbers = [number for one in several for number in one]
            flat.append(attribute_of(name, numbers, AttributeProto.INTS))
    flat += [attribute_of_any(name, list(each)) for name, each in values.items() if each]
    return flat + [attribute_of_any(n, value) for n, value in others.items() if value is not None]


def check_choices(proportions: Sequence[Any], types: Sequence[Any]) -> None:
    """Raises a `popart_exception` for a memory proportion or partials type that makes no sense."""
    for each in proportions:
        if not isinstance(each, int | float) or not 0 < each <= 1:
            raise popart_exception(
                "Each of `availableMemoryProportions` must be in (0,1]. Received: "
                f"availableMemoryProportions={list(proportions)!r}"
            )
    for each in types:
        if str(each).upper() not in ("FLOAT", "HALF"):
            raise popart_exception(
                "Each of `partialsTypes` is 'float' or 'half'. Received: "
                f"partialsTypes={list(types)!r}"
            )

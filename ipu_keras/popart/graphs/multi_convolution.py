"""Several convolutions as one node: what each of them has, one after the other."""

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import AttributeProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.attributes import attribute_of, attribute_of_any

# Of each convolution, images, weights and bias.
_INPUTS = 3


def multiconv_inputs(args: Any) -> list[str]:
    """The inputs of the node: three of each convolution, an empty one for no bias.

    Args:
        args: For each convolution two or three ids.

    Raises:
        popart_exception: They are others.
    """
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
    """The attributes of the node.

    Args:
        number: Of convolutions.
        lists: By name, a list for each convolution, or none.
        values: By name, a value for each convolution, or none.
        others: By name, one for all, or `None`.

    Raises:
        popart_exception: There are not as many as convolutions, or they are of a wrong type.
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
    """Refuses what no convolution can be planned by.

    Args:
        proportions: Of memory, one for each convolution.
        types: That they add up in.

    Raises:
        popart_exception: There are such.
    """
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

"""What documented layers take when they are called, besides their own arguments."""

from collections.abc import Mapping
from typing import Any


def refuse_unknown(layer: str, given: Mapping[str, Any]) -> None:
    """Refuses the arguments of a call that a layer has no use for.

    Documents give `call` a `**kwargs`, where a misspelt name would go unnoticed. Only
    `training` may be there, for layers that do the same in training as otherwise.

    Args:
        layer: Name of the layer's class.
        given: Values by argument.

    Raises:
        TypeError: There is any but `training`.
    """
    for argument, value in given.items():
        if argument != "training":
            raise TypeError(
                f"`{layer}` has no argument `{argument}` of its call; leave it out. "
                f"Received: {argument}={value!r}"
            )

"""The check of the keyword arguments that documented layers take when they are called."""

from collections.abc import Mapping
from typing import Any


def refuse_unknown(layer: str, given: Mapping[str, Any]) -> None:
    """Refuses arguments of a layer's call that the layer has no use for, except `training`.

    Documents give `call` a `**kwargs`, in which a misspelt name would go unnoticed. `training`
    is let through because callers pass it to every layer, also to those that do the same in
    training as in inference.
    """
    for argument, value in given.items():
        if argument != "training":
            raise TypeError(
                f"`{layer}` has no argument `{argument}` of its call; leave it out. "
                f"Received: {argument}={value!r}"
            )
